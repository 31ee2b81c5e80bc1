"""Where settings come from, which are refused, and that every fault is told at once."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hourhand.cli.config import config as config_command
from hourhand.config import Config, all_keys, load_config, masked, origins, reference_page
from hourhand.database.embedded_settings import EmbeddedSettings, with_buffers
from hourhand.model.errors import BadConfiguration

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def load(text: str | None = None, environ: dict[str, str] | None = None, **flags: Any) -> Config:
    """Flags are written with __ for the dot."""
    path = None
    if text is not None:
        path = Path("hourhand.toml")
        path.write_text(text)
    return load_config(path, environ or {}, {name.replace("__", "."): value for name, value in flags.items()})


def faults_of(text: str | None = None, environ: dict[str, str] | None = None, **flags: Any) -> list[str]:
    with pytest.raises(BadConfiguration) as caught:
        load(text, environ, **flags)
    return caught.value.faults


def origin_of(config: Config, key: str) -> str:
    return next(each.origin for each in origins(config) if each.key == key)


# --- sources ----------------------------------------------------------------------------------------------


def test_without_any_source_every_key_has_its_default(tmp_path: Path) -> None:
    config = load()

    assert config.home == tmp_path / ".hourhand"
    assert config.api.host == "127.0.0.1"
    assert config.name
    assert {each.origin for each in origins(config)} == {"default"}
    assert [each.key for each in origins(config)] == [key.name for key in all_keys()]


def test_flag_beats_environment_beats_file_beats_default() -> None:
    text, environ = "[api]\nport = 1001\n", {"HOURHAND_API_PORT": "1002"}

    assert load(text).api.port == 1001
    assert load(text, environ).api.port == 1002
    assert load(text, environ, api__port=1003).api.port == 1003
    assert origin_of(load(text), "api.port") == "hourhand.toml:2"
    assert origin_of(load(text, environ), "api.port") == "HOURHAND_API_PORT"
    assert origin_of(load(text, environ, port=1003), "api.port") == "flag port"


@pytest.mark.parametrize("empty", ["", "  "])
def test_an_empty_variable_does_not_overwrite_the_file(empty: str) -> None:
    assert load("[api]\nport = 1001\n", {"HOURHAND_API_PORT": empty, "HOURHAND_PORT": empty}).api.port == 1001


def test_a_flag_of_none_was_not_given() -> None:
    assert load("[api]\nport = 1001\n", api__port=None, home=None).api.port == 1001


def test_the_full_variable_beats_the_short_one() -> None:
    environ = {"HOURHAND_PORT": "1", "HOURHAND_HOST": "localhost"}

    assert (load(None, environ).api.port, load(None, environ).api.host) == (1, "localhost")
    assert load(None, environ | {"HOURHAND_API_PORT": "2"}).api.port == 2


def test_every_type_is_read_from_the_environment() -> None:
    config = load(
        None,
        {
            "HOURHAND_EXECUTOR_SLOTS_PROCESS": "8",
            "HOURHAND_EXECUTOR_POLL_SECONDS": "0.25",
            "HOURHAND_EXECUTOR_QUEUES": "fast, slow,",
            "HOURHAND_LOG_JSON": "yes",
            "HOURHAND_LOG_LEVEL": "debug",
            "HOURHAND_EMBEDDED_BINARIES": "/opt/pg/bin",
            "HOURHAND_KINDS_RUN_AS": "none",
            "HOURHAND_NAME": "berlin-1",
        },
    )

    assert config.executor.slots_process == 8
    assert config.executor.poll_seconds == 0.25
    assert config.executor.queues == ("fast", "slow")
    assert config.log.json is True
    assert config.log.level == "debug"
    assert config.embedded.binaries == Path("/opt/pg/bin")
    assert config.kinds.run_as is None
    assert config.name == "berlin-1"


def test_every_type_is_read_from_the_file(tmp_path: Path) -> None:
    config = load(
        'name = "a"\napi.port = 5\n[executor]\nqueues = ["x", "y"]\npoll_seconds = 1\n'
        '[log]\njson = true\n[embedded]\nbinaries = "pg/bin"\n[kinds]\nrun_as = "none"\n'
    )

    assert (config.name, config.api.port, config.executor.queues) == ("a", 5, ("x", "y"))
    assert config.executor.poll_seconds == 1.0
    assert config.log.json is True
    assert config.embedded.binaries == tmp_path / "pg/bin"
    assert config.kinds.run_as is None
    assert origin_of(config, "api.port") == "hourhand.toml:2"


def test_commands_by_name_are_a_table_in_the_file_and_json_in_a_variable() -> None:
    of_file = load('[kinds.interpreters]\nlua = "lua5.4"\npython = ["/opt/python3", "-u"]\n')
    of_variable = load("", {"HOURHAND_KINDS_INTERPRETERS": '{"lua": "lua5.4", "python": ["/opt/python3", "-u"]}'})

    assert of_file.kinds.interpreters == {"lua": ("lua5.4",), "python": ("/opt/python3", "-u")}
    assert of_variable.kinds.interpreters == of_file.kinds.interpreters


@pytest.mark.parametrize("written", ['"lua5.4"', "[]", '{lua = ""}', "{lua = []}", "{lua = [1]}", "{lua = 5}"])
def test_commands_that_are_none_are_refused(written: str) -> None:
    with pytest.raises(BadConfiguration, match=r"kinds\.interpreters must be a table"):
        load(f"[kinds]\ninterpreters = {written}\n")


def test_the_file_in_the_home_is_read_when_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "hourhand.toml").write_text("[api]\nport = 7\n")
    (tmp_path / "other.toml").write_text("[api]\nport = 8\n")

    assert load(None, {"HOURHAND_HOME": "home"}).api.port == 7
    assert load(None, {"HOURHAND_HOME": "home", "HOURHAND_CONFIG": "other.toml"}).api.port == 8
    assert load(None, {}, home="home").home == tmp_path / "home"


def test_a_file_that_was_named_must_be_there() -> None:
    assert faults_of(None, {"HOURHAND_CONFIG": "gone.toml"}) == [
        "gone.toml: cannot be read (no such file or directory)"
    ]


def test_submitting_has_the_schedulers_horizon() -> None:
    assert load("[scheduler]\nhorizon_seconds = 7\n").submit.horizon_seconds == 7.0


# --- secrets ----------------------------------------------------------------------------------------------


def test_a_secret_can_lie_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("postgresql://u:p@h/d\n")
    config = load(None, {"HOURHAND_DATABASE_URL_FILE": "secret"})

    assert config.database.url == "postgresql://u:p@h/d"
    assert origin_of(config, "database.url") == "HOURHAND_DATABASE_URL_FILE"


def test_a_secret_file_must_be_readable_and_hold_something(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")

    assert faults_of(None, {"HOURHAND_DATABASE_URL_FILE": "empty"}) == ["HOURHAND_DATABASE_URL_FILE: empty is empty"]
    [fault] = faults_of(None, {"HOURHAND_DATABASE_URL_FILE": "gone"})
    assert "gone cannot be read" in fault


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:p@ss:w/rd@h:5/d", "postgresql://u:***@h:5/d"),
        ("postgresql://u@h/d?password=hush&x=1", "postgresql://u@h/d?password=***&x=1"),
        ("postgresql://:hush@/d?host=/tmp", "postgresql://:***@/d?host=/tmp"),
        ("postgresql:///d", "postgresql:///d"),
        ("", ""),
    ],
)
def test_passwords_are_masked(url: str, shown: str) -> None:
    assert masked(url) == shown


def test_no_secret_is_shown_by_origins_repr_or_faults() -> None:
    config = load(None, {"HOURHAND_DATABASE_URL": "postgresql://u:hush@h/d"})

    assert "hush" not in repr(config)
    assert "hush" not in repr(origins(config))
    assert "hush" not in repr(faults_of(None, {"HOURHAND_DATABASE_URL": "mysql://u:hush@h/d"}))


# --- what is unknown --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[api]\nprot = 1\n", "hourhand.toml:2: there is no key api.prot; did you mean api.port"),
        ("[excutor]\n", "hourhand.toml:1: there is no section excutor; did you mean executor?"),
        ("\nslots_inline = 1\n", "hourhand.toml:2: there is no key slots_inline; did you mean executor.slots_inline?"),
        ("api = 1\n", "hourhand.toml:1: api is a section"),
        ('home = "x"\n', "hourhand.toml:1: home cannot be set in the file"),
        ("[submit]\nhorizon_seconds = 1\n", "hourhand.toml:1: there is no section submit"),
        ("[api\n", "hourhand.toml:1: not TOML"),
        ("[api]\nport = 1\nport = 2\n", "hourhand.toml:3: not TOML"),
    ],
)
def test_what_the_file_should_not_say_is_refused_with_its_line(text: str, fault: str) -> None:
    [found] = faults_of(text)
    assert found.startswith(fault)


def test_a_file_that_is_not_text_is_refused() -> None:
    Path("x.toml").write_bytes(b"\xff\xfe")
    assert faults_of(None, {"HOURHAND_CONFIG": "x.toml"}) == ["x.toml: not a text in UTF-8"]


def test_unknown_variables_and_flags_are_refused_with_a_suggestion() -> None:
    [fault] = faults_of(None, {"HOURHAND_EXECUTOR_SLOT_PROCESS": "3"})
    assert fault.startswith(
        "HOURHAND_EXECUTOR_SLOT_PROCESS: there is no such variable; did you mean HOURHAND_EXECUTOR_SLOTS_PROCESS"
    )
    assert "did you mean api.port" in faults_of(api__prt=3)[0]


def test_variables_of_others_are_left_alone() -> None:
    names = "SERVER TOKEN TOKEN_FILE NAMESPACE DEBUG BENCH_WITNESS CRASH_AT RUN_ID JOB_ID JOB_NAME ATTEMPT FENCE_TOKEN"
    load(None, {f"HOURHAND_{name}": "x" for name in [*names.split(), "SCHEDULED_TIME", "WORKER_ID"]} | {"HOUR": "x"})


def test_variables_that_kubernetes_makes_for_a_service_of_our_name_are_left_alone() -> None:
    config = load(
        None,
        {
            "HOURHAND_PORT": "tcp://10.0.0.7:8420",
            "HOURHAND_API_PORT": "tcp://10.0.0.7:8420",
            "HOURHAND_SERVICE_HOST": "10.0.0.7",
            "HOURHAND_API_SERVICE_PORT_HTTP": "8420",
            "HOURHAND_PORT_8420_TCP_ADDR": "10.0.0.7",
        },
    )
    assert origin_of(config, "api.port") == "default"


# --- what is wrong ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("api.port", "70000"),
        ("api.port", "-1"),
        ("api.port", '"80"'),
        ("api.port", "true"),
        ("api.port", "80.0"),
        ("executor.lease_seconds", "0"),
        ("executor.lease_seconds", "nan"),
        ("executor.lease_seconds", "inf"),
        ("executor.lease_seconds", "1" + "0" * 400),
        ("executor.claim_ahead_seconds", "1.5"),
        ("executor.claim_ahead_seconds", "-0.1"),
        ("executor.queues", '"a,b"'),
        ("executor.queues", "[1]"),
        ("executor.queues", "[]"),
        ("executor.labels", '["gpu", "zone="]'),
        ("executor.labels", '"gpu"'),
        ("executor.resources", '["gpu"]'),
        ("executor.resources", '["memory=lots"]'),
        ("executor.resources", '["gpu=1", "gpu=2"]'),
        ("executor.resources", "{ gpu = -1 }"),
        ("executor.resources", "{ slots = 2 }"),
        ("executor.resources", "{ gpu = 1.5 }"),
        ("executor.resources", "{ cpu = true }"),
        ("executor.resources", "3"),
        ("api.token_cache_seconds", "6"),
        ("log.json", '"yes"'),
        ("log.level", '"loud"'),
        ("log.level", "[1]"),
        ("database.schema", '"Hour Hand"'),
        ("database.schema", '"pg_x"'),
        ("database.schema", '"user"'),
        ("database.schema", '"hourhand\\n"'),
        ("database.url", "1"),
        ("database.url", '"localhost"'),
        ("database.pooler", "true"),
        ("api.public_url", '"jobs.example.com"'),
        ("kinds.plugins", '{ "../x" = ["/opt/x"] }'),
        ("kinds.plugins", '{ "command" = ["/opt/x"] }'),
        ("kinds.artifact_keys", '["abc"]'),
        ("kinds.require_signed_artifacts", "true"),
        ("embedded.isolation", '"docker"'),
        ("embedded.system_folder", "1"),
        ("name", '""'),
        ("name", '"a\\u001b[2J"'),
    ],
)
def test_a_wrong_value_is_refused_where_it_stands(key: str, value: str) -> None:
    [fault] = faults_of(f"\n{key} = {value}\n")
    assert fault.startswith("hourhand.toml:2: ")
    assert key in fault


def test_resources_are_a_table_or_a_list_and_in_variables_a_list() -> None:
    as_table = load('[executor]\nresources = { gpu = 2, memory = "8GB", cpu = 1.5 }\n')
    assert as_table.executor.resources == ("gpu=2", "memory=8GB", "cpu=1.5")
    assert load('[executor]\nresources = ["gpu=2"]\n').executor.resources == ("gpu=2",)
    assert load(None, {"HOURHAND_EXECUTOR_RESOURCES": "gpu=2, memory=8GB"}).executor.resources == (
        "gpu=2",
        "memory=8GB",
    )


def test_a_fault_says_what_is_allowed() -> None:
    assert faults_of(None, {"HOURHAND_PORT": "abc"}) == [
        "HOURHAND_PORT: api.port must be a whole number, at least 0 and at most 65535, not 'abc'"
    ]
    assert faults_of(log__level="loud") == [
        "flag log.level: log.level must be one of debug, info, warning, error, not 'loud'"
    ]


def test_any_free_port_can_be_asked_for_by_flag_and_environment_only() -> None:
    assert load(api__port=0).api.port == 0
    assert load(None, {"HOURHAND_PORT": "0"}).api.port == 0
    assert "picks any free port" in faults_of("[api]\nport = 0\n")[0]


@pytest.mark.parametrize("room", ["scheduler", "executor"])
def test_three_heartbeats_must_fit_into_a_lease(room: str) -> None:
    fence = "[executor]\nself_fence_seconds = 0.2\nself_fence_kill_seconds = 0.05\n"
    load(f"{fence if room == 'executor' else '[scheduler]'}\nlease_seconds = 0.3\nheartbeat_seconds = 0.1\n")
    [fault] = faults_of(f"[{room}]\nlease_seconds = 15\nheartbeat_seconds = 6\n")
    assert fault.startswith(f"hourhand.toml:3: {room}.heartbeat_seconds (6) must be at most a third")


def test_an_executor_must_end_its_careful_runs_before_its_lease_does() -> None:
    load("[executor]\nself_fence_seconds = 12.9\n")
    [fault] = faults_of("[executor]\nself_fence_seconds = 13\n")
    told = "executor.self_fence_seconds (13) and executor.self_fence_kill_seconds (2) must together be shorter than"
    assert fault.startswith(f"hourhand.toml:2: {told} executor.lease_seconds (15)")
    assert len(faults_of("[executor]\nlease_seconds = 3\n")) == 2, "the heartbeats do not fit either"


def test_careful_runs_are_not_ended_between_two_heartbeats() -> None:
    [fault] = faults_of("[executor]\nself_fence_seconds = 4\n")
    assert fault.endswith("executor.heartbeat_seconds (4) must be below executor.self_fence_seconds (4)")


def test_the_tick_is_below_the_horizon() -> None:
    [fault] = faults_of("[scheduler]\nhorizon_seconds = 0.5\n")
    assert fault == "hourhand.toml:2: scheduler.tick_seconds (1) must be below scheduler.horizon_seconds (0.5)"


@pytest.mark.parametrize(("gigabytes", "megabytes"), [(0.5, 128), (8, 512), (24, 1024), (512, 1024)])
def test_the_page_cache_of_the_embedded_server_fits_the_memory_that_is_there(gigabytes: float, megabytes: int) -> None:
    memory = int(gigabytes * 2**30)
    assert with_buffers(EmbeddedSettings(), memory).shared_buffers_mb == megabytes
    assert with_buffers(EmbeddedSettings(shared_buffers_mb=7), memory).shared_buffers_mb == 7


def test_pools_must_fit_into_the_embedded_server() -> None:
    assert "embedded.connections_max" in faults_of(database__pool_max=50)[0]
    load(database__pool_max=50, database__url="postgresql://h/d")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.com"])
def test_an_address_that_others_reach_needs_consent(host: str) -> None:
    assert "server.insecure_bind" in faults_of(api__host=host)[0]
    assert load(api__host=host, server__insecure_bind=True).api.host == host


def test_an_empty_address_is_no_address() -> None:
    assert "api.host must be" in faults_of(api__host="", server__insecure_bind=True)[0]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "[::1]", "localhost"])
def test_loopback_needs_no_consent(host: str) -> None:
    load(api__host=host)


def test_all_faults_are_told_at_once() -> None:
    found = faults_of(
        "[api]\nport = 70000\nlisen = 1\n[scheduler]\nlease_seconds = 1\n",
        {"HOURHAND_LOG_LEVEL": "loud", "HOURHAND_X": "1"},
        api__host="0.0.0.0",
    )
    assert len(found) == 6


def test_a_wrong_value_is_not_blamed_for_rules_it_takes_part_in() -> None:
    assert len(faults_of('[scheduler]\nlease_seconds = "long"\nheartbeat_seconds = 60\n')) == 1


# --- commands and docs ------------------------------------------------------------------------------------


def test_check_says_that_all_is_right() -> None:
    result = CliRunner().invoke(config_command, ["check"])
    assert (result.exit_code, result.output) == (0, "configuration is right\n")


def test_check_exits_with_78_and_every_fault(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("[api]\nport = -1\nprot = 1\n")
    result = subprocess.run(
        [sys.executable, "-m", "hourhand.cli", "config", "check", "--config", "x.toml"],
        env={"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 78
    assert "x.toml:2" in result.stderr
    assert "x.toml:3" in result.stderr


def test_show_tells_values_and_origins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOURHAND_DATABASE_URL", "postgresql://u:hush@h/d")
    data = json.loads(CliRunner().invoke(config_command, ["show", "--origin", "-o", "json"]).output)
    table = CliRunner().invoke(config_command, ["show", "--origin"]).output

    assert data["database.url"] == {"value": "postgresql://u:***@h/d", "origin": "HOURHAND_DATABASE_URL"}
    assert data["executor.queues"] == {"value": ["default"], "origin": "default"}
    assert "postgresql://u:***@h/d" in table
    assert "hush" not in table


def test_reading_the_configuration_imports_no_server() -> None:
    code = "import sys; from hourhand.config import load_config; load_config(environ={}); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True, check=True
    )
    assert not {"hourhand.api.app", "aiohttp", "granian", "httpx"} & set(done.stdout.split())


def test_the_reference_page_is_fresh() -> None:
    """Refresh: python -c "from hourhand.config import *; print(reference_page(), end='')" > the page."""
    assert (ROOT / "docs/reference/configuration.md").read_text() == reference_page()

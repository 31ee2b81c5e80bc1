"""The documentation says what the code does: tables, commands, routes and links are compared with it."""

import ast
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from zoneinfo import ZoneInfo

import click
import pytest

from hourhand import Context
from hourhand.api import frequencies
from hourhand.api.app import ApiOperations, ApiSettings, list_endpoints
from hourhand.api.endpoints import Endpoint
from hourhand.api.problems import STATUS, STATUS_BY_CODE
from hourhand.api.routes import contract_job_service, contract_schedule_service
from hourhand.api.routes.backfills import BackfillView
from hourhand.api.routes.forecast import ForecastView
from hourhand.api.views import RunView
from hourhand.cli.exits import ExitCode
from hourhand.cli.job_fields import field_options
from hourhand.cli.main import cli
from hourhand.job_kinds import (
    command_payload,
    container,
    container_payload,
    http_options,
    http_payload,
    interpreters,
    programs,
    script_payload,
)
from hourhand.job_kinds.handlers import HANDLER_FIELD, SECRETS_FIELD, HandlerRegistry
from hourhand.job_kinds.progress_files import PROGRESS_VARIABLE
from hourhand.job_kinds.registry import KindSettings, builtin_kinds
from hourhand.model import errors, states
from hourhand.model.advice import AdviceCode
from hourhand.model.cron import MACROS
from hourhand.model.explain import GateName
from hourhand.model.node_state import NodeState
from hourhand.model.resources import BUILT_IN
from hourhand.model.schedule_form import parse_timing
from hourhand.model.templates import TEMPLATE_WORDS
from hourhand.model.usage import Usage
from hourhand.operations.backfill_requests import StartBackfillRequest
from hourhand.operations.calendars import CalendarRequest
from hourhand.operations.callbacks import CallbackRequest
from hourhand.operations.cluster_requests import NodeDetail, QueueStatus
from hourhand.operations.requests import CatchUpRequest, JobRequest, PlacementRequest, RetryRequest
from hourhand.operations.secrets import GrantRequest, SecretRequest

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = sorted((ROOT / "docs").rglob("*.md"))
MANUAL: Final = [ROOT / "README.md", *DOCS]
REFERENCE: Final = ROOT / "docs" / "reference"
JOBS, API, CLI, CONTRACTS = (REFERENCE / f"{page}.md" for page in ("jobs", "api", "cli", "contracts"))
HTTP_JOBS: Final = REFERENCE / "kinds" / "http.md"
PYTHON_JOBS: Final = ROOT / "docs" / "guides" / "python-jobs.md"


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def table(page: Path, title: str) -> list[list[str]]:
    """The rows of the table below the comment of that title, without its heading."""
    _, found, rest = page.read_text().partition(f"<!-- {title} -->\n")
    assert found, f"{name_of(page)} has no table <!-- {title} -->"
    return rows_of(rest.partition("\n\n")[0])


def rows_of(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def words(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def first_words(page: Path, title: str) -> list[str]:
    return [word for row in table(page, title) for word in words(row[0])]


# --- tables -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("title", "known"),
    [
        ("job states", [state.value for state in states.JobState]),
        ("run states", [state.word for state in states.RunState]),
        ("causes", [cause.word for cause in states.Cause]),
        ("reasons", [reason.value for reason in states.Reason]),
        ("fields of JobRequest", [*JobRequest.__struct_fields__]),
        ("fields of RetryRequest", [*RetryRequest.__struct_fields__]),
        ("fields of PlacementRequest", [*PlacementRequest.__struct_fields__]),
        ("advice codes", [code.value for code in AdviceCode]),
        ("resources", [*BUILT_IN]),
        ("fields of CatchUpRequest", [*CatchUpRequest.__struct_fields__]),
        ("fields of CalendarRequest", [*CalendarRequest.__struct_fields__]),
        ("template words", [f"{{{{{word}}}}}" for word in TEMPLATE_WORDS]),
        ("payload of python", [HANDLER_FIELD, SECRETS_FIELD]),
        ("payload of command", [*command_payload.FIELDS]),
        ("payload of http", [*http_payload.FIELDS]),
    ],
)
def test_the_page_of_jobs_names_exactly_what_the_code_knows(title: str, known: list[str]) -> None:
    assert first_words(JOBS, title) == known


@pytest.mark.parametrize(
    ("page", "known"), [("script", script_payload.FIELDS), ("container", container_payload.FIELDS)]
)
def test_the_page_of_a_kind_names_exactly_the_fields_of_its_payload(page: str, known: tuple[str, ...]) -> None:
    assert first_words(REFERENCE / "kinds" / f"{page}.md", f"payload of {page}") == [*known]


def test_every_kind_has_a_page_and_a_place_among_the_kinds_of_jobs() -> None:
    kinds = set(builtin_kinds(KindSettings(), HandlerRegistry(), checking=True))
    pages = {page.stem for page in (REFERENCE / "kinds").glob("*.md")}
    assert kinds == pages - {"plugins"}
    told = re.findall(r"^### `(\w+)`$", JOBS.read_text(), re.M)
    assert sorted(told) == sorted(kinds)
    for kind in kinds:
        assert f"(kinds/{kind}.md)" in JOBS.read_text()


def test_the_variables_of_a_program_are_told() -> None:
    """What a program is given beside what its job says, as the source of the runner has it."""
    given = set(re.findall(r'"(HOURHAND_[A-Z_]+)"', Path(programs.__file__).read_text())) | {PROGRESS_VARIABLE}
    assert len(given) > 8
    section = JOBS.read_text().partition("### `command`\n")[2].partition("\n### ")[0]
    assert given | {"HOURHAND_SECRET_FILE_<NAME>"} == set(re.findall(r"`(HOURHAND_[A-Z_<>]+)`", section))
    boxed = set(re.findall(r'"(HOURHAND_[A-Z_]+)"', Path(container.__file__).read_text()))
    assert boxed | {PROGRESS_VARIABLE} == given, "a container is given the same"


def test_the_page_of_scripts_has_the_usual_languages_and_suffixes() -> None:
    told = {words(row[0])[0]: words(row[1]) for row in table(REFERENCE / "kinds" / "script.md", "languages")}
    by_suffix = script_payload.LANGUAGE_BY_SUFFIX.items()
    assert told == {word: [suffix for suffix, named in by_suffix if named == word] for word in interpreters.USUAL}


@pytest.mark.parametrize(
    ("title", "known"),
    [
        ("fields of tls", http_options.TLS_FIELDS),
        ("fields of proxy", http_options.PROXY_FIELDS),
        ("fields of oauth", http_options.OAUTH_FIELDS),
        ("fields of CallbackRequest", CallbackRequest.__struct_fields__),
    ],
)
def test_the_page_of_http_jobs_names_exactly_what_the_code_knows(title: str, known: tuple[str, ...]) -> None:
    assert first_words(HTTP_JOBS, title) == list(known)


@pytest.mark.parametrize("shape", [SecretRequest, GrantRequest])
def test_the_page_of_secrets_names_exactly_the_fields_of_its_bodies(shape: Any) -> None:
    assert first_words(REFERENCE / "secrets.md", f"fields of {shape.__name__}") == [*shape.__struct_fields__]


def test_the_page_of_jobs_says_which_states_are_final() -> None:
    told = {words(row[0])[0]: row[1] == "yes" for row in table(JOBS, "run states")}

    assert told == {state.word: state.is_final for state in states.RunState}


def test_the_page_of_jobs_has_every_step_of_a_run() -> None:
    told = {
        (state, words(event)[0]): words(to)[0]
        for event, origins, to in table(JOBS, "steps")
        for state in words(origins)
    }

    assert told == {(state.word, event.value): to.word for (state, event), to in states.STEPS.items()}


def test_the_page_of_jobs_has_the_macros_of_cron() -> None:
    assert {words(macro)[0]: words(cron)[0] for macro, cron in table(JOBS, "macros")} == MACROS


@pytest.mark.parametrize("row", table(JOBS, "daylight saving"), ids=lambda row: " ".join(row[:2]))
def test_the_page_of_jobs_shows_what_happens_when_the_clock_changes(row: list[str]) -> None:
    cron, choice, *told = row
    chosen = dict(pair.split(": ") for pair in words(choice))
    timing = parse_timing(
        {"cron": words(cron)[0]},
        "Europe/Berlin",
        gap=chosen.get("dst_gap"),
        overlap=chosen.get("dst_overlap"),
        now=datetime(2027, 1, 1, tzinfo=UTC),
        seed=0,
    )
    berlin = ZoneInfo("Europe/Berlin")
    for day, shown in zip(((3, 28), (10, 31)), told, strict=True):
        midnight = datetime(2027, *day, tzinfo=berlin).astimezone(UTC)
        due = timing.due_between(midnight, midnight + timedelta(hours=12), 10)
        assert (", ".join(instant.astimezone(berlin).strftime("%H:%M %Z") for instant in due) or "-") == shown


def test_the_guide_to_handlers_has_everything_of_the_context() -> None:
    told = [word.partition("(")[0] for word in first_words(PYTHON_JOBS, "context")]

    assert told == [name for name in vars(Context) if not name.startswith("_")]


def test_the_page_of_the_api_has_every_field_of_a_run() -> None:
    assert sorted(first_words(API, "fields of RunView")) == sorted(RunView.__struct_fields__)
    assert first_words(API, "fields of Usage") == [*Usage.__struct_fields__]


@pytest.mark.parametrize(
    ("title", "known"),
    [
        ("gates", [gate.value for gate in GateName]),
        ("node states", [state.value for state in NodeState]),
        ("fields of QueueStatus", [*QueueStatus.__struct_fields__]),
        ("fields of NodeDetail", [*NodeDetail.__struct_fields__]),
        ("fields of StartBackfillRequest", [*StartBackfillRequest.__struct_encode_fields__]),
    ],
)
def test_the_page_of_the_api_names_exactly_what_operators_get(title: str, known: list[str]) -> None:
    assert first_words(API, title) == known


def test_the_page_of_the_api_has_every_field_of_a_backfill() -> None:
    assert sorted(first_words(API, "fields of BackfillView")) == sorted(BackfillView.__struct_encode_fields__)


def test_the_page_of_the_api_has_every_field_of_a_forecast() -> None:
    assert sorted(first_words(API, "fields of ForecastView")) == sorted(ForecastView.__struct_encode_fields__)


def test_the_page_of_contracts_has_the_fields_of_their_bodies() -> None:
    bodies: list[tuple[str, Any]] = [
        ("fields of ScheduledJobBody", contract_schedule_service.ScheduledJobBody),
        ("fields of SubmittedJob", contract_job_service.SubmittedJob),
    ]
    for title, body in bodies:
        assert first_words(CONTRACTS, title) == [*body.__struct_encode_fields__]


def test_the_page_of_contracts_has_the_words_for_runs_and_frequencies() -> None:
    told = {words(run)[0]: words(word)[0] for run, word in table(CONTRACTS, "run words of /jobs")}
    assert told == {state.word: contract_schedule_service._run_word(state) for state in states.RunState}

    first = datetime(2030, 1, 31, 9, 30, tzinfo=UTC)
    rows = {words(row[0])[0]: (words(row[1])[0], words(row[2])[0]) for row in table(CONTRACTS, "frequencies")}
    assert rows == {
        word: tuple(frequencies.recurring_schedule(word, time)["cron"] for time in (first, None))
        for word in frequencies.SHORT_FORMS
    }


def test_the_page_of_commands_has_the_exit_codes() -> None:
    assert [int(row[0]) for row in table(CLI, "exit codes")] == [code.value for code in ExitCode]


# --- problem codes ----------------------------------------------------------------------------------------

# Where each maker of refusals takes its code: the place among its arguments.
_FIELD_CODES: Final = {"Fault": 1, "refuse": 1, "CronFault": 0, "InstantFault": 0, "RRuleFault": 0}
_PROBLEM_CODES: Final = {"Conflict": 0, "MalformedBody": 0, "BadRequest": 0, "InvalidParameter": 2}


def codes_in_source(makers: Mapping[str, int], *folders: str) -> set[str]:
    found = set()
    for folder in folders:
        for file in (ROOT / "src" / "hourhand" / folder).rglob("*.py"):
            calls = (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call))
            for call in calls:
                name = getattr(call.func, "id", getattr(call.func, "attr", ""))
                place = makers.get(name)
                if place is not None and len(call.args) > place and isinstance(call.args[place], ast.Constant):
                    found.add(call.args[place].value)  # type: ignore[attr-defined]
    return found


def test_the_page_of_the_api_has_every_code_of_a_field() -> None:
    told = {code for row in table(API, "field codes") for code in words(row[1])}

    # A zone's code is an attribute of its own error.
    known = codes_in_source(_FIELD_CODES, "api", "operations", "model", "job_kinds") | {"unknown-timezone"}
    assert told == known


def test_the_page_of_the_api_has_every_problem_with_its_status() -> None:
    told = {code: int(row[0]) for row in table(API, "problems") for code in words(row[1])}
    classes = {kind.code: status for kind, status in STATUS.items() if "code" in vars(kind)}  # type: ignore[attr-defined]
    classes |= {
        kind.code: STATUS[errors.WorldError] for kind in (errors.DatabaseUnavailable, errors.DatabaseUnsuitable)
    }

    assert classes.items() | STATUS_BY_CODE.items() <= told.items()
    assert codes_in_source(_PROBLEM_CODES, "api", "operations", "model") <= told.keys()
    source = "".join(file.read_text() for file in (ROOT / "src" / "hourhand").rglob("*.py"))
    assert [code for code in told if f'"{code}"' not in source] == []


# --- routes -----------------------------------------------------------------------------------------------


def all_endpoints() -> list[Endpoint]:
    nobody: Any = None
    return list_endpoints(ApiOperations(*[nobody] * len(fields(ApiOperations))), ApiSettings())


def told_routes(page: Path) -> dict[str, list[str]]:
    """Each route in a table, and what stands beside it in code."""
    lines = re.findall(r"^\| `([A-Z]+ /[^`]*)` \|(.*)$", page.read_text(), re.M)
    assert len({route for route, _ in lines}) == len(lines), f"a route is told twice in {name_of(page)}"
    return {route: words(rest) for route, rest in lines}


def test_the_page_of_the_api_has_every_route_and_no_other() -> None:
    assert sorted(told_routes(API)) == sorted(f"{each.method} {each.path}" for each in all_endpoints())


def test_the_page_of_contracts_has_their_routes_and_no_other() -> None:
    modules: list[ModuleType] = [contract_schedule_service, contract_job_service]
    of_contracts = [
        each for each in all_endpoints() if any(each.path.partition("/{")[0] == module.BASE for module in modules)
    ]

    assert sorted(told_routes(CONTRACTS)) == sorted(f"{each.method} {each.path}" for each in of_contracts)


@pytest.mark.parametrize("page", [API, CONTRACTS], ids=name_of)
def test_each_route_is_told_with_its_parameters(page: Path) -> None:
    told = told_routes(page)
    known = {f"{each.method} {each.path}": [one.name for one in each.parameters] for each in all_endpoints()}

    missing = {route: set(known[route]) - set(beside) for route, beside in told.items()}
    assert {route: names for route, names in missing.items() if names} == {}


# --- commands ---------------------------------------------------------------------------------------------

_BLOCK: Final = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.M | re.S)
_SEPARATORS: Final = {"|", "||", "&&", ";", "&"}
_ASSIGNMENT: Final = re.compile(r"\w+=.*", re.S)


def typed_lines(page: Path) -> Iterator[str]:
    """Every line of the page that somebody might type, as it stands in blocks and within sentences."""
    text = page.read_text()
    for _, language, block in _BLOCK.findall(text):
        lines = block.replace("\\\n", " ").splitlines()
        if language == "console":
            lines = [line.strip().removeprefix("$ ") for line in lines if line.strip().startswith("$ ")]
        elif language == "ini":
            lines = [line.partition("=")[2] for line in lines if line.startswith("ExecStart=")]
        elif language != "sh":
            continue
        yield from lines
    yield from re.findall(r"`((?:\w+=\S+ )*hourhand [^`]+)`", _BLOCK.sub("", text))


def hourhand_arguments(line: str) -> Iterator[list[str]]:
    """The arguments of each `hourhand` in a shell's line."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;")
    lexer.whitespace_split = True
    command: list[str] = []
    for token in [*lexer, ";"]:
        if token not in _SEPARATORS:
            command.append(token)
            continue
        while command and _ASSIGNMENT.fullmatch(command[0]):
            del command[0]
        if command and Path(command[0]).name == "hourhand":
            yield command[1:]
        command = []


def parse(command: click.Command, arguments: list[str], path: str = "hourhand") -> None:
    """Reads arguments as click would, but for the values' types: ids and numbers may be shortened in a text."""
    context = click.Context(command, info_name=path)
    if isinstance(command, click.Group):
        _, rest, _ = command.make_parser(context).parse_args(list(arguments))
        if rest:
            name, found, rest = command.resolve_command(context, rest)
            assert found is not None
            parse(found, rest, f"{path} {name}")
        return
    if "--" in arguments:
        arguments = arguments[: arguments.index("--")]
    _, rest, _ = command.make_parser(context).parse_args(list(arguments))
    assert not rest, f"{path} takes no further words: {rest}"


def commands_of(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands_of(command, (*path, name))
        else:
            yield (*path, name), command


def options_of(command: click.Command) -> set[str]:
    shown = [each for each in command.params if isinstance(each, click.Option) and not each.hidden]
    return {word for option in shown for word in option.opts}


@pytest.mark.parametrize("page", MANUAL, ids=name_of)
def test_every_command_in_the_documentation_exists_with_its_options(page: Path) -> None:
    wrong = []
    for line in typed_lines(page):
        try:
            for arguments in hourhand_arguments(line):
                parse(cli, arguments)
        except (click.UsageError, AssertionError, ValueError) as fault:
            message = fault.format_message() if isinstance(fault, click.UsageError) else str(fault)
            wrong.append(f"{line.strip()}: {message}")
    assert wrong == []


@pytest.mark.parametrize(
    "line",
    ["hourhand jab list", "A=1 hourhand job list --statu x", "true && hourhand job get a b", "hourhand up --port"],
)
def test_a_wrong_command_is_found(line: str) -> None:
    [arguments] = hourhand_arguments(line)

    with pytest.raises((click.UsageError, AssertionError)):
        parse(cli, arguments)


def test_the_page_of_commands_has_every_command_with_an_example() -> None:
    examples = [arguments for line in typed_lines(CLI) for arguments in hourhand_arguments(line)]
    shown = {tuple(arguments[:count]) for arguments in examples for count in (1, 2)}

    assert [" ".join(path) for path, _ in commands_of(cli) if path not in shown] == []


def test_the_page_of_commands_has_every_option_of_every_command() -> None:
    of_session = options_of(cli) - {"--version"}
    of_jobs = options_of(field_options(click.command()(lambda **_: None)))
    assert {word for row in table(CLI, "options of a job") for word in words(row[0])} == of_jobs

    rows = {
        words(line)[0]: set(words(line.rpartition(" | ")[2]))
        for line in CLI.read_text().splitlines()
        if line[:3] == "| `"
    }
    told = {
        " ".join(part for part in re.split(r"[ \[]", row) if part.islower()): options for row, options in rows.items()
    }
    for path, command in commands_of(cli):
        known = options_of(command)
        if of_session <= known:
            known -= of_session
        if of_jobs <= known:
            known -= of_jobs
        assert {word for word in told[" ".join(path)] if word.startswith("-")} == known, " ".join(path)

"""The only reader of file and environment: finds every setting, checks it, and says where it came from.

For each key: flag, then environment, then file, then the default of the room that owns it. Promises to report all
faults at once, each with its place, and never to show a secret. Decides nothing about how a setting is used.
"""

import ast
import inspect
import json
import math
import os
import re
import socket
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, Literal, get_args, get_origin, get_type_hints

from hourhand.config_rules import SECRETS, broken_rules
from hourhand.model.errors import BadConfiguration
from hourhand.model.resources import DISK_MAX, MEMORY_MAX, MEMORY_MIN
from hourhand.model.run_blobs import RESULT_BYTES_HARD_MAX, RESULT_INLINE_BYTES_MAX

if TYPE_CHECKING:
    from hourhand.api.settings import ApiSettings
    from hourhand.blobs.settings import BlobSettings
    from hourhand.database.connections import DatabaseSettings
    from hourhand.database.embedded_settings import EmbeddedSettings
    from hourhand.executor.settings import ExecutorSettings
    from hourhand.job_kinds.registry import KindSettings
    from hourhand.operations.jobs import SubmitSettings
    from hourhand.runtime.keyring import SecretSettings
    from hourhand.scheduler.settings import KeptLogSettings, SchedulerSettings


@dataclass(frozen=True, slots=True)
class LogSettings:
    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least important lines that are still written."""
    json: bool = False
    """True writes JSON, one object per line, for programs; false writes text for people."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    insecure_bind: bool = False
    """True lets `api.host` be an address others reach, over plain HTTP: whoever listens in learns the tokens."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One value and its origin: `default`, a variable, `file:line`, or the key of a flag."""

    key: str
    value: Any
    origin: str


@dataclass(frozen=True, slots=True)
class Config:
    home: Path
    """Everything this node keeps on disk, absolute."""
    name: str
    """What the names of this machine's nodes begin with."""
    api: "ApiSettings"
    server: ServerSettings
    database: "DatabaseSettings" = field(repr=False)  # its URL may hold a password
    embedded: "EmbeddedSettings"
    scheduler: "SchedulerSettings"
    executor: "ExecutorSettings"
    kinds: "KindSettings"
    blobs: "BlobSettings" = field(repr=False)
    secrets: "SecretSettings"
    submit: "SubmitSettings"
    logs: "KeptLogSettings"
    log: LogSettings
    settings: tuple[Setting, ...] = field(default=(), repr=False, compare=False)
    files: tuple[Path, ...] = field(default=(), repr=False, compare=False)
    """What was read to make it: the file, and those that hold one secret each."""


@dataclass(frozen=True, slots=True)
class Key:
    """One thing that can be set."""

    name: str
    type: Any
    nullable: bool
    default: Any
    variables: tuple[str, ...]


DEFAULT: Final = "default"
_SHORT: Final = {"api.host": "HOURHAND_HOST", "api.port": "HOURHAND_PORT"}
_FLAGS: Final = {"host": "api.host", "port": "api.port"}
_OTHER_VARIABLES: Final = {
    "HOURHAND_CONFIG": "The file to read instead of `hourhand.toml` in the home.",
    "HOURHAND_SERVER": "The API that commands talk to.",
    "HOURHAND_TOKEN": "The token that commands send.",
    "HOURHAND_TOKEN_FILE": "A file that holds this token.",
    "HOURHAND_NAMESPACE": "The namespace that commands work in.",
    "HOURHAND_DEBUG": "`1` shows a traceback with every error.",
}
_NOT_OURS: Final = re.compile(
    r"HOURHAND_(RUN_ID|JOB_ID|INDEX|TOTAL|JOB_NAME|ATTEMPT|FENCE_TOKEN|SCHEDULED_TIME|OUTPUT_DIR|WORKER_ID|CRASH_AT|BENCH_\w+)"
    # Kubernetes announces a service named hourhand to every container this way.
    r"|HOURHAND(_\w+)?_SERVICE_(HOST|PORT)(_\w+)?|HOURHAND(_\w+)?_PORT_\d+_(TCP|UDP)(_\w+)?"
)
_SERVICE_ADDRESS: Final = re.compile(r"(tcp|udp)://\S+:\d+")
_TABLES: Final = ("executor.resources",)
"""Lists of texts like gpu=2 that a file may also write as a table: { gpu = 2 }."""
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_WHOLE_MOST: Final = 2**31 - 1
_SECONDS_MOST: Final = 366 * 86400.0
_RANGES: Final[Mapping[str, tuple[float, float]]] = {  # others: from 1 for whole numbers, above 0 for the rest
    "api.port": (0, 65535),
    "api.token_cache_seconds": (0, 5),
    "embedded.connections_max": (20, 10_000),
    "executor.result_bytes_max": (RESULT_INLINE_BYTES_MAX, RESULT_BYTES_HARD_MAX),
    "executor.output_files_max": (0, 100_000),
    "executor.output_bytes_max": (0, 2**50),
    "executor.slots_inline": (0, _WHOLE_MOST),
    "executor.slots_process": (0, _WHOLE_MOST),
    "executor.claim_ahead_seconds": (0, 1),
    "executor.claim_ahead_crowded_seconds": (0, 1),
    "executor.stop_seconds": (0, _SECONDS_MOST),
    "kinds.worker_processes_warm": (0, _WHOLE_MOST),
    "kinds.grace_seconds": (0, _SECONDS_MOST),
    "kinds.disk_bytes_max": (1, DISK_MAX),
    "kinds.memory_bytes_max": (MEMORY_MIN, MEMORY_MAX),
    "kinds.uid_first": (1000, 2**31 - 1),
    "kinds.uid_count": (0, 2**31 - 1),
    "kinds.http_body_bytes_max": (1, 256 * 1024),
    "scheduler.keep_runs_days": (1, 36_500),
    "logs.keep_days": (1, 36_500),
    "logs.database_days": (0, 36_500),
    "scheduler.keep_audit_days": (1, 36_500),
}


def load_config(
    path: Path | None = None, environ: Mapping[str, str] | None = None, flags: Mapping[str, Any] | None = None
) -> Config:
    """Reads everything; raises BadConfiguration with all faults. Flags go by key ("database.url", "home", "name"), and
    by "host" and "port" for short; None counts as not given."""
    environ = os.environ if environ is None else environ
    draft = _Draft()
    draft.take_flags({key: value for key, value in (flags or {}).items() if value is not None})
    draft.take_environment(environ)
    draft.take_file(path or (Path(environ["HOURHAND_CONFIG"]) if environ.get("HOURHAND_CONFIG") else None))
    draft.take_defaults()
    draft.check_rules()
    if draft.faults:
        raise BadConfiguration(draft.faults)
    return draft.config()


def origins(config: Config) -> list[Setting]:
    """Every key with its value and where it came from, fit to be shown: passwords are masked."""
    return [replace(each, value=_shown(each)) if each.key in SECRETS else each for each in config.settings]


def _shown(secret: Setting) -> str | None:
    if not secret.value:
        return None if secret.value is None else ""
    return masked(secret.value) if secret.key.endswith(("url", "proxy")) else "***"


def masked(url: str) -> str:
    """The URL without its password."""
    hidden = re.sub(r"(://[^:@/?]*:).*@", r"\1***@", url)
    return re.sub(r"([?&](?:ssl)?password=)[^&]*", r"\1***", hidden, flags=re.IGNORECASE)


class _Draft:
    """Settings as they are found, the strongest source first: what is there is not replaced."""

    def __init__(self) -> None:
        self.keys = {key.name: key for key in all_keys()}
        self.found: dict[str, Setting] = {}
        self.faults: list[str] = []
        self._files: list[Path] = []
        self._wrong: set[str] = set()

    def take_flags(self, flags: Mapping[str, Any]) -> None:
        for word, value in flags.items():
            name, origin = _FLAGS.get(word, word), f"flag {word}"
            if name in self.keys:
                self._take(self.keys[name], value, origin, is_text=isinstance(value, str))
            else:
                self.faults.append(f"{origin}: there is no such setting{_meant(word, self.keys)}")

    def take_environment(self, environ: Mapping[str, str]) -> None:
        known = {variable: key for key in self.keys.values() for variable in key.variables}
        # In the order of `variables`: the supervisor hands its findings to its children under the full names.
        ranks = {variable: rank for key in self.keys.values() for rank, variable in enumerate(key.variables)}
        for variable, text in sorted(environ.items(), key=lambda item: (ranks.get(item[0], 0), item[0])):
            value = text.strip()
            if not variable.startswith("HOURHAND_") or not value or _is_foreign(variable, value):
                continue
            key = known.get(variable)
            if key is None:
                self.faults.append(f"{variable}: there is no such variable{_meant(variable, known)}")
                continue
            if variable.endswith("_FILE"):
                value = self._secret_of(variable, value)
            if value:
                self._take(key, value, variable, is_text=True)

    def take_file(self, path: Path | None) -> None:
        """The file that was named, which must be there, or the one in the home, which need not."""
        self.found.setdefault("home", Setting("home", Path(os.path.abspath(".hourhand")), DEFAULT))
        file = path or self.found["home"].value / "hourhand.toml"
        try:
            text = file.read_bytes().decode()
            content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            what, _, place = str(error).partition(" (at ")
            line = re.match(r"line (\d+)", place)
            self.faults.append(f"{file}:{line[1] if line else len(text.splitlines())}: not TOML: {what.lower()}")
        except UnicodeDecodeError:
            self.faults.append(f"{file}: not a text in UTF-8")
        except OSError as error:
            if path is not None or not isinstance(error, FileNotFoundError | NotADirectoryError):
                self.faults.append(f"{file}: cannot be read ({(error.strerror or str(error)).lower()})")
        else:
            self._files.append(file.absolute())
            self._take_content(file, content, _key_lines(text))

    def _take_content(self, file: Path, content: Mapping[str, Any], lines: Mapping[str, int]) -> None:
        sections = section_classes()
        for name, value in content.items():
            at = f"{file}:{lines[name]}" if name in lines else str(file)
            if name in sections and isinstance(value, dict):
                for inner, inner_value in value.items():
                    key = f"{name}.{inner}"
                    self._take_entry(key, inner_value, f"{file}:{lines[key]}" if key in lines else at, file.parent)
            elif name in sections:
                self.faults.append(f"{at}: {name} is a section: write [{name}] and its keys below")
            elif isinstance(value, dict):
                self.faults.append(f"{at}: there is no section {name}{_meant(name, sections)}")
            else:
                self._take_entry(name, value, at, file.parent)

    def _take_entry(self, name: str, value: Any, at: str, folder: Path) -> None:
        if name not in self.keys:
            self.faults.append(f"{at}: there is no key {name}{_meant(name, self.keys)}")
        elif name == "home":
            self.faults.append(f"{at}: home cannot be set in the file, which may lie in it; set HOURHAND_HOME")
        elif name == "api.port" and value == 0 and value is not False:
            self.faults.append(f"{at}: api.port 0 picks any free port, which only a flag or HOURHAND_PORT may ask for")
        else:
            self._take(self.keys[name], value, at, is_text=False, folder=folder)

    def take_defaults(self) -> None:
        for key in self.keys.values():
            self.found.setdefault(key.name, Setting(key.name, key.default, DEFAULT))

    def _secret_of(self, variable: str, file: str) -> str:
        try:
            secret = Path(file).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = (error.strerror or "").lower() if isinstance(error, OSError) else "it is not text"
            self.faults.append(f"{variable}: {file} cannot be read ({why})")
            return ""
        if not secret:
            self.faults.append(f"{variable}: {file} is empty")
        self._files.append(Path(file).absolute())
        return secret

    def _take(self, key: Key, raw: Any, origin: str, *, is_text: bool, folder: Path | None = None) -> None:
        try:
            value = _parse(key, raw, is_text=is_text, folder=folder or Path())
        except (ValueError, OverflowError):
            shown = "what it is" if key.name in SECRETS else repr(raw)
            self.faults.append(f"{origin}: {key.name} must be {allowed(key)}, not {shown}")
            if key.name not in self.found:
                self._wrong.add(key.name)
        else:
            self.found.setdefault(key.name, Setting(key.name, value, origin))

    def check_rules(self) -> None:
        for names, message in broken_rules({name: setting.value for name, setting in self.found.items()}):
            if not self._wrong.intersection(names):
                places = [self.found[name].origin for name in names if self.found[name].origin != DEFAULT]
                self.faults.append(f"{(places or [DEFAULT])[0]}: {message}")

    def config(self) -> Config:
        from hourhand.database.embedded_settings import with_buffers
        from hourhand.operations.jobs import SubmitSettings
        from hourhand.runtime.machine import usable_memory

        values = {name: setting.value for name, setting in self.found.items()}
        rooms: dict[str, Any] = {
            section: made(**{each.name: values[f"{section}.{each.name}"] for each in fields(made)})
            for section, made in section_classes().items()
        }
        rooms["embedded"] = with_buffers(rooms["embedded"], usable_memory())
        submit = SubmitSettings(horizon_seconds=values["scheduler.horizon_seconds"])
        settings, files = tuple(self.found[name] for name in self.keys), tuple(self._files)
        return Config(values["home"], values["name"], submit=submit, settings=settings, files=files, **rooms)


def section_classes() -> dict[str, Any]:
    """The settings class of each section. Imported here: the kinds bring much along that not every command needs."""
    from hourhand.api.settings import ApiSettings
    from hourhand.blobs.settings import BlobSettings
    from hourhand.database.connections import DatabaseSettings
    from hourhand.database.embedded_settings import EmbeddedSettings
    from hourhand.executor.settings import ExecutorSettings
    from hourhand.job_kinds.registry import KindSettings
    from hourhand.runtime.keyring import SecretSettings
    from hourhand.scheduler.settings import KeptLogSettings, SchedulerSettings

    return {
        "api": ApiSettings,
        "server": ServerSettings,
        "database": DatabaseSettings,
        "embedded": EmbeddedSettings,
        "scheduler": SchedulerSettings,
        "executor": ExecutorSettings,
        "kinds": KindSettings,
        "blobs": BlobSettings,
        "logs": KeptLogSettings,
        "secrets": SecretSettings,
        "log": LogSettings,
    }


def all_keys() -> Iterator[Key]:
    yield Key("home", Path, False, Path(".hourhand"), ("HOURHAND_HOME",))
    yield Key("name", str, False, socket.gethostname(), ("HOURHAND_NAME",))
    for section, settings in section_classes().items():
        hints = get_type_hints(settings)
        for each in fields(settings):
            name = f"{section}.{each.name}"
            variable = f"HOURHAND_{section}_{each.name}".upper()
            further = [_SHORT[name]] if name in _SHORT else [f"{variable}_FILE"] if name in SECRETS else []
            hint = hints[each.name]
            types = [part for part in get_args(hint) if part is not NoneType]
            nullable = NoneType in get_args(hint)
            default = each.default if each.default_factory is MISSING else each.default_factory()
            yield Key(name, types[0] if nullable else hint, nullable, default, (variable, *further))


def allowed(key: Key) -> str:
    """What may be written there, in words."""
    least, most = _limits(key)
    upper = "" if most in (_WHOLE_MOST, _SECONDS_MOST) else f" and at most {most:g}"
    words = "a text"
    if key.type is bool:
        words = "true or false"
    elif key.type in (int, float):
        lower = f"at least {least:g}" if key.type is int or key.name in _RANGES else "above 0"
        words = f"a {'whole ' if key.type is int else ''}number, {lower}{upper}"
    elif get_origin(key.type) is Literal:
        words = f"one of {', '.join(get_args(key.type))}"
    elif get_origin(key.type) is tuple:
        words = "a list of texts, or a table of amounts" if key.name in _TABLES else "a list of texts"
    elif get_origin(key.type) is Mapping:
        words = "a table that has a command (a list of texts, or one text) for each name"
    elif key.type is Path:
        words = "a path"
    return f"{words}, or none" if key.nullable else words


def _limits(key: Key) -> tuple[float, float]:
    return _RANGES.get(key.name, (1, _WHOLE_MOST) if key.type is int else (math.ulp(0.0), _SECONDS_MOST))


def _parse(key: Key, raw: Any, *, is_text: bool, folder: Path) -> Any:
    """The value meant by a word of the environment or by what TOML read. Raises ValueError."""
    kind = key.type
    if key.nullable and raw == "none":
        return None
    if kind is bool and is_text and raw.lower() in (*_TRUE, *_FALSE):
        return raw.lower() in _TRUE
    if kind in (int, float):
        return _parse_number(key, raw, is_text=is_text)
    if get_origin(kind) is tuple:
        if isinstance(raw, dict) and key.name in _TABLES:
            raw = [f"{name}={amount}" for name, amount in raw.items() if not isinstance(amount, dict | list)]
        parts = [part.strip() for part in raw.split(",")] if is_text else raw
        if isinstance(parts, list | tuple) and all(isinstance(part, str) for part in parts):
            return tuple(part for part in parts if part)
        raise ValueError
    if get_origin(kind) is Mapping:
        return _parse_commands(json.loads(raw) if is_text else raw)
    if get_origin(kind) is Literal and raw in get_args(kind):
        return raw
    if kind is Path and isinstance(raw, str | Path):
        return Path(os.path.abspath(folder / raw))
    if kind in (bool, str) and isinstance(raw, kind):
        return raw
    raise ValueError


def _parse_commands(raw: Any) -> dict[str, tuple[str, ...]]:
    if not isinstance(raw, Mapping):
        raise ValueError
    commands = {}
    for name, said in raw.items():
        words = [said] if isinstance(said, str) else said
        if not (name and words and isinstance(words, list | tuple) and all(isinstance(word, str) for word in words)):
            raise ValueError
        if not words[0]:
            raise ValueError
        commands[name] = tuple(words)
    return commands


def _parse_number(key: Key, raw: Any, *, is_text: bool) -> int | float:
    fits = isinstance(raw, int if key.type is int else int | float) and not isinstance(raw, bool)
    if is_text or fits:
        value: int | float = key.type(raw)
        least, most = _limits(key)
        if least <= value <= most:  # says no to nan as well
            return value
    raise ValueError


def _is_foreign(variable: str, value: str) -> bool:
    """Read by others: commands, jobs, tests; or put there by Kubernetes for a service of our name."""
    if variable in _OTHER_VARIABLES or _NOT_OURS.fullmatch(variable):
        return True
    return variable.endswith("_PORT") and _SERVICE_ADDRESS.fullmatch(value) is not None


def _meant(word: str, known: Mapping[str, Any]) -> str:
    tail = word.rpartition(".")[2]
    same = [name for name in known if name.rpartition(".")[2] == tail]
    found = same or get_close_matches(word, list(known), n=2, cutoff=0.7)
    if found:
        return f"; did you mean {' or '.join(found)}?"
    return f"; there are {', '.join(known)}" if len(known) < 12 else "; `hourhand config show` lists all"


def _key_lines(text: str) -> dict[str, int]:
    """The line of each key and section. A guess that holds for files as people write them."""
    lines: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[+\s*([\w.\"'-]+)\s*\]", line):
            section = header[1].strip("\"'") + "."
            lines.setdefault(section[:-1], number)
        elif entry := re.match(r"\s*([\w.\"'-]+(?:\s*\.\s*[\w\"'-]+)*)\s*=", line):
            name = section + re.sub(r"[\s\"']", "", entry[1])
            lines.setdefault(name, number)
            lines.setdefault(name.partition(".")[0], number)
    return lines


_PAGE_HEAD: Final = """# Configuration

<!-- Written by hourhand.config.reference_page() from the settings classes; a test keeps it fresh. -->

For each key: flag, then environment, then file, then default. An empty variable counts as not set; of two variables the
first counts. The file is TOML: `--config`, `HOURHAND_CONFIG`, or `hourhand.toml` in the home; paths in it start from
its folder. A variable `..._FILE` names a file that holds the value. In variables, lists are separated by commas and
tables are JSON; `none` stands for no value. Unknown keys and `HOURHAND_` variables are faults. `hourhand config check`
tells every fault, `hourhand config show --origin` where each value comes from."""
_TABLE: Final = "| Key | Default | Allowed | Variable | Meaning |\n|---|---|---|---|---|"


def reference_page() -> str:
    """The text of docs/reference/configuration.md."""
    meanings = {
        f"{section}.{name}": text
        for section, settings in section_classes().items()
        for name, text in _meanings(settings).items()
    } | _meanings(Config)
    page, section = [_PAGE_HEAD, "", _TABLE], ""
    for key in all_keys():
        if key.name.rpartition(".")[0] != section:
            section = key.name.rpartition(".")[0]
            page += ["", f"## {section}", "", _TABLE]
        default = "the host's name" if key.name == "name" else f"`{json.dumps(key.default, default=str)}`"
        variables = ", ".join(f"`{variable}`" for variable in key.variables)
        meaning = meanings.get(key.name, "").replace("|", "\\|")
        page.append(f"| `{key.name}` | {default.replace('null', 'none')} | {allowed(key)} | {variables} | {meaning} |")
    page += ["", "## Other variables", "", "| Variable | Meaning |", "|---|---|"]
    page += [f"| `{variable}` | {meaning} |" for variable, meaning in _OTHER_VARIABLES.items()]
    return "\n".join(page) + "\n"


def _meanings(settings: type) -> dict[str, str]:
    """The sentence below each field, which only the source still has."""
    [made] = ast.parse(inspect.getsource(settings)).body
    assert isinstance(made, ast.ClassDef)
    found = {}
    for statement, following in pairwise(made.body):
        match statement, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(text.split())
    return found

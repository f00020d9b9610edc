"""
A service's settings, described once: a dataclass whose fields are its flags.

A field has the flag's name, default and help, and reads as the value.
Neighbours: `flags` parses the command line.
"""

from argparse import SUPPRESS, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from hamicommon.runtime import MAX_CONNECTIONS
from hamicommon.runtime.program.flags import FlagParser, bool_flag, number, whole
from hamicommon.wire.go.strconv import parse_bool

_KEY = "setting"


@dataclass(frozen=True, slots=True)
class Setting:
    """The flag that sets a field."""

    names: tuple[str, ...]
    variables: tuple[str, ...]
    """The environment variables that apply without the flag, the first that is set."""
    key: tuple[str, ...]
    """Where the service's files have it, as a path of keys; empty: nowhere."""
    default: Any
    """As it is written on the command line."""
    help: str
    read: Callable[[str], Any] | None
    choices: Sequence[str] | None
    metavar: str | None
    is_late: bool
    """Whether its text is read only once all its sources are known, so that all errors are reported at once."""

    @property
    def is_bool(self) -> bool:
        """Whether the flag is written `--x`, `--x=true` or `--x=false`."""
        return isinstance(self.default, bool)

    @property
    def shown(self) -> str:
        """The help, with its variables, and with the default if argparse knows none."""
        variables = f" [{', '.join(f'${name}' for name in self.variables)}]" if self.variables else ""
        is_default_unknown = self.default not in ("", None) and (self.variables or self.is_late)
        return f"{self.help}{variables}" + (f" (default: {self._text})" if is_default_unknown else "")

    def text(self, found: Namespace, environment: Mapping[str, str], of_file: Callable[[tuple[str, ...]], str]) -> str:
        """Return its text from the first source that has one: flag, variables, the key *of_file*, default."""
        given = getattr(found, self.names[0].lstrip("-").replace("-", "_"), None)
        if given is not None:
            return str(given)
        sources = (environment.get(name) for name in self.variables)
        return next(filter(None, sources), "") or (of_file(self.key) if self.key else "") or self._text

    @property
    def _text(self) -> str:
        return str(self.default).lower() if self.is_bool else str(self.default)


def setting(
    names: str,
    default: Any,
    help: str,  # noqa: A002 - argparse's own word
    *,
    read: Callable[[str], Any] | None = None,
    choices: Sequence[str] | None = None,
    metavar: str | None = None,
    variable: str = "",
    key: str = "",
    is_late: bool = False,
) -> Any:
    """
    Return a dataclass field that a flag sets, called any of the blank-separated *names*.

    *default* is written as on the command line, and *read* makes the value from it. A boolean default makes a boolean
    flag. Without the flag, the blank-separated environment variables in *variable* apply. Of a setting that *is_late*,
    the parser keeps the text: `values` reads it, and also from the service's files, which have it at *key*, such as
    `flags.plugin.passDeviceSpecs`.
    """
    words = (tuple(names.split()), tuple(variable.split()), tuple(filter(None, key.split("."))))
    described = Setting(*words, default, help, read, choices, metavar, is_late)
    return field(default=read(default) if read and isinstance(default, str) else default, metadata={_KEY: described})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    """The settings that every service has."""

    kubeconfig: str = setting(
        "--kubeconfig", "", "kubeconfig file; empty: $KUBECONFIG, ~/.kube/config, the service account"
    )
    verbosity: int = setting("-v --v", 0, "log verbosity; 4 shows debug lines", read=whole)
    max_connections: int = setting(
        "--max-connections", MAX_CONNECTIONS, "open connections of each listener", read=number
    )
    authenticates_scrapes: bool = setting(
        "--metrics-authentication", False, "answer scrapes only to tokens whose owner may get /metrics"
    )
    without_effect: tuple[str, ...] = ()
    """Flags that were given and have no effect, each with the reason."""


Config = TypeVar("Config", bound=ServiceConfig)


def parser_of(kind: type[ServiceConfig], prog: str, version: str, description: str) -> FlagParser:
    """Return a parser with `--version` and the flags of *kind*."""
    parser = FlagParser(prog, version, description)
    for name, described in settings_of(kind):
        if described.is_late:
            if described.is_bool:
                parser.bool_flags.update(described.names)
            metavar = "BOOL" if described.is_bool else described.metavar
            parser.add_argument(*described.names, default=SUPPRESS, metavar=metavar, help=described.shown)
        elif described.is_bool:
            bool_flag(parser, described.names[0], described.default, described.help, dest=name)
        else:
            parser.add_argument(
                *described.names,
                dest=name,
                default=SUPPRESS if described.variables else described.default,
                type=described.read or str,
                choices=described.choices,
                metavar=described.metavar,
                help=described.shown,
            )
    return parser


def values(
    kind: type[ServiceConfig],
    parser: FlagParser,
    found: Namespace,
    environment: Mapping[str, str] | None = None,
    of_file: Callable[[tuple[str, ...]], str] = lambda _key: "",
) -> tuple[dict[str, Any], list[str]]:
    """
    Return what *parser* has *found* for each field of *kind*, and a sentence for each text that is wrong.

    A late setting whose text is wrong has its default.
    """
    given: dict[str, Any] = {"without_effect": parser.without_effect(found)}
    problems = []
    environment = environment or {}
    for name, described in settings_of(kind):
        read = described.read or (_bool if described.is_bool else str)
        variable = next(filter(environment.get, described.variables), None)
        try:
            if described.is_late:
                given[name] = read(described.text(found, environment, of_file))
            elif hasattr(found, name):
                given[name] = getattr(found, name)
            elif variable:
                given[name] = read(environment[variable])
        except ArgumentTypeError as error:
            problems.append(f"{described.names[0] if described.is_late else variable}: {error}")
            given[name] = read(str(described.default))
    return given, problems


def settings_of(kind: type[ServiceConfig]) -> Iterator[tuple[str, Setting]]:
    """Yield each field of *kind* that a flag sets, with the flag."""
    for each in fields(kind):
        if _KEY in each.metadata:
            yield each.name, each.metadata[_KEY]


def _bool(text: str) -> bool:
    value = parse_bool(text)
    if value is None:
        raise ArgumentTypeError(f"{text!r} is not true or false")
    return value

"""
Settings that a dataclass describes.
"""

from dataclasses import dataclass

import pytest

from hamicommon.runtime.program.flags import FlagParser, span, words
from hamicommon.runtime.program.settings import ServiceConfig, parser_of, setting, values


@dataclass(frozen=True, slots=True)
class Config(ServiceConfig):
    """One of each kind."""

    name: str
    """Not a flag."""
    address: str = setting("--address", ":80", "where to listen")
    is_on: bool = setting("--on", True, "whether it is on")
    wait_seconds: float = setting("--wait", "5s", "how long to wait", read=span, variable="WAIT")
    colours: tuple[str, ...] = setting("--colours", "red,blue", "what to mix", read=words)


def read(*arguments: str, **environment: str) -> tuple[Config, list[str]]:
    """Return the settings, and what is wrong with variables."""
    parser: FlagParser = parser_of(Config, "svc", "1.2.3", "Does things.")
    given, problems = values(Config, parser, parser.parse_args(arguments), environment)
    return Config("n", **given), problems


def test_defaults_are_values() -> None:
    """Also of a dataclass that no command line made."""
    assert (Config("n"), []) == read()
    assert (5.0, ("red", "blue"), True) == (Config("n").wait_seconds, Config("n").colours, Config("n").is_on)


def test_flags_set_their_fields() -> None:
    """Those of every service too."""
    config, _ = read("--address=:81", "--on=false", "--wait=2s", "--colours=", "--max-connections=7", "-v=3")

    assert Config("n", ":81", False, 2.0, (), max_connections=7, verbosity=3) == config


@pytest.mark.parametrize(
    ("arguments", "variable", "seconds", "problems"),
    [
        ((), "7s", 7.0, []),
        (("--wait=2s",), "7s", 2.0, []),
        ((), "", 5.0, []),
        ((), "soon", 5.0, ["WAIT: 'soon' is not a duration such as 300ms, 28s or 1h30m"]),
        (("--wait=2s",), "soon", 2.0, []),
    ],
)
def test_variable_applies_without_its_flag(
    arguments: tuple[str, ...], variable: str, seconds: float, problems: list[str]
) -> None:
    """A wrong one is told, unless the flag is given."""
    config, found = read(*arguments, WAIT=variable)

    assert (seconds, problems) == (config.wait_seconds, found)


@dataclass(frozen=True, slots=True)
class Late(ServiceConfig):
    """Settings that files have, too."""

    wait_seconds: float = setting(
        "--wait", "5s", "how long", read=span, variable="WAIT OLD", key="a.wait", is_late=True
    )
    is_on: bool = setting("--on --also", False, "whether it is on", variable="ON", is_late=True)


@pytest.mark.parametrize(
    ("arguments", "environment", "file", "expected"),
    [
        (("--wait=1s",), {"WAIT": "2s"}, "4s", 1.0),
        ((), {"WAIT": "2s", "OLD": "3s"}, "4s", 2.0),
        ((), {"WAIT": "", "OLD": "3s"}, "4s", 3.0),
        ((), {}, "4s", 4.0),
        ((), {}, "", 5.0),
    ],
)
def test_late_setting_is_read_from_its_strongest_source(
    arguments: tuple[str, ...], environment: dict[str, str], file: str, expected: float
) -> None:
    """Flag, variables in order, file, default."""
    parser = parser_of(Late, "svc", "1", "Does things.")
    given, problems = values(Late, parser, parser.parse_args(arguments), environment, lambda _key: file)

    assert (expected, False, []) == (given["wait_seconds"], given["is_on"], problems)


def test_late_settings_tell_all_errors_by_their_flags() -> None:
    """Whichever source they are from; the default stands in."""
    parser = parser_of(Late, "svc", "1", "Does things.")
    given, problems = values(Late, parser, parser.parse_args(["--also=maybe"]), {"WAIT": "soon"})

    wait, on = problems
    assert ("--wait: 'soon' is not a duration such as 300ms, 28s or 1h30m", "--on: 'maybe' is not true or false") == (
        wait,
        on,
    )
    assert (5.0, False) == (given["wait_seconds"], given["is_on"])


def test_help_has_defaults_as_they_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    """And the variable."""
    with pytest.raises(SystemExit):
        read("--help")

    said = " ".join(capsys.readouterr().out.split())
    for part in ("how long to wait [$WAIT] (default: 5s)", "what to mix (default: red,blue)", "is on (default: true)"):
        assert part in said

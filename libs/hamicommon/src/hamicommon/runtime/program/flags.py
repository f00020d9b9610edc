"""
Command lines in the syntax of Go's pflag and klog, so that HAMi's arguments work unchanged.

It accepts `--flag=value`, `--flag value`, `--bool`, `--bool=false`, `-v=4`, `--v=4` and `version`, and no
abbreviations. If a flag is repeated, the last one applies. An error names its flag.
Source: https://github.com/spf13/pflag/blob/v1.0.10/README.md (Command line flag syntax)
"""

import argparse
import difflib
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

_BOOLS = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}
"""Source: https://pkg.go.dev/strconv#ParseBool"""
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_UNIT_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}

_LONGEST_SECONDS = 2562047 * 3600.0
"""Go counts nanoseconds in 64 bits."""


class FlagParser(argparse.ArgumentParser):
    """An ArgumentParser with pflag's syntax."""

    def __init__(self, prog: str, version: str, description: str) -> None:
        super().__init__(
            prog=prog,
            usage=f"{prog} [--flag=value]...",
            description=description,
            allow_abbrev=False,
            formatter_class=_HelpFormatter,
        )
        self.version = version
        self.add_argument("--version", action="version", version=f"{prog} {version}", help="print the version")
        self.bool_flags: set[str] = set()
        self.removed: dict[str, str] = {}
        """Flags of older versions that are rejected, each with what to write instead."""
        self.ignored = self.add_argument_group("accepted without effect")

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parse *args* (default: the process's). Exit on `version`, `--help` or an error."""
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self._refuse(unknown[0])
        return found

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parse as `parse_args`, and also return the unknown arguments."""
        given = list(sys.argv[1:] if args is None else args)
        if given == ["version"]:
            given = ["--version"]
        # pflag: a bool flag never takes the next argument, so `--x false` is `--x` and a stray word.
        given = [f"{word}=true" if word in self.bool_flags else word for word in given]
        return super().parse_known_args(given, namespace)

    def has(self, name: str) -> bool:
        """Return whether flag *name* is known."""
        return name in self._option_string_actions

    def without_effect(self, found: argparse.Namespace) -> tuple[str, ...]:
        """Return each flag in *found*, the parsed flags, that has no effect, as `--flag: reason`."""
        given = vars(found)
        return tuple(
            f"{action.option_strings[0]}: {action.help}"
            for action in self.ignored._group_actions
            if action.dest in given
        )

    def error(self, message: str) -> NoReturn:
        """Print one line with a hint to the help, and exit with 2."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")

    def _refuse(self, word: str) -> NoReturn:
        if not word.startswith("-"):
            self.error(f"unexpected argument {word!r}: flags are written --flag=value")
        name = word.split("=", 1)[0]
        if name in self.removed:
            self.error(f"unknown flag: {name}; {self.removed[name]}")
        near = difflib.get_close_matches(name, self._option_string_actions, n=1)
        self.error(f"unknown flag: {name}" + (f"; did you mean {near[0]}?" if near else ""))


class _HelpFormatter(argparse.HelpFormatter):
    """Prints the default of each flag that has one, as it is written on the command line."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        if action.default in (None, "", argparse.SUPPRESS) or not action.option_strings:
            return text
        default = str(action.default).lower() if isinstance(action.default, bool) else action.default
        return f"{text} (default: {default})"


def bool_flag(flags: FlagParser, name: str, default: bool, help: str, **more: Any) -> None:  # noqa: A002
    """Add a flag that is written `--x`, `--x=true` or `--x=false`, with Go's spellings of both."""
    flags.bool_flags.add(name)
    flags.add_argument(name, type=_bool, default=default, metavar="BOOL", help=help, **more)


def ignored_flag(flags: FlagParser, name: str, help: str, *, is_bool: bool = False) -> None:  # noqa: A002
    """Accept a flag of HAMi that has no effect, as *help* explains. It is in the result only if it was given."""
    if is_bool:
        flags.bool_flags.add(name)
    flags.ignored.add_argument(name, default=argparse.SUPPRESS, metavar="BOOL" if is_bool else "VALUE", help=help)


def duration(text: str) -> float:
    """
    Return the seconds of a Go duration.

    >>> duration("1m30s"), duration("-1.5h"), duration("0")
    (90.0, -5400.0, 0.0)
    """
    sign, body = (-1.0, text[1:]) if text.startswith("-") else (1.0, text.removeprefix("+"))
    if body == "0":
        return 0.0
    parts = list(_DURATION.finditer(body))
    if not parts or "".join(part.group() for part in parts) != body:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 300ms, 28s or 1h30m")
    seconds = sum(float(part.group(1)) * _UNIT_SECONDS[part.group(2)] for part in parts)
    if seconds > _LONGEST_SECONDS:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is longer than the longest duration, 2562047h")
    return sign * seconds


def wait(text: str) -> float:
    """Return the seconds of a Go duration of 0 or more."""
    seconds = duration(text)
    if seconds < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is negative; write 0 or more")
    return seconds


def span(text: str) -> float:
    """Return the seconds of a Go duration above 0."""
    seconds = duration(text)
    if seconds <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not longer than 0; write a duration such as 30s")
    return seconds


def words(text: str) -> tuple[str, ...]:
    """
    Return the words of a comma list, each once, without empty ones.

    >>> words("b,a,,b")
    ('b', 'a')
    """
    return tuple(dict.fromkeys(filter(None, text.split(","))))


def whole(text: str) -> int:
    """Return a decimal integer."""
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def number(text: str) -> int:
    """Return a decimal integer above 0."""
    found = whole(text)
    if found <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not above 0")
    return found


def _bool(text: str) -> bool:
    if text not in _BOOLS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a boolean such as true or false")
    return _BOOLS[text]

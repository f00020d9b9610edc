"""
The Python targets, one module each: what is called with an input, and what must hold then.

A module has `check`, which raises for a finding, and `seeds`, the forms that peers really write, from the vectors. With
`IS_JSON` its inputs are changed as JSON. `INPUTS` is how many make up a run of a fixed number, some five seconds.
"""

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Final, Protocol, cast

from fuzz.bounds import Check

PACKAGES: Final = ("hamicommon", "hami_webhook", "hami_scheduler", "hami_device_plugin", "hami_monitor")
"""Whose coverage guides."""
NAMES: Final = tuple(module.name for module in iter_modules([str(Path(__file__).parent)]) if module.name != "forms")


class Target(Protocol):
    """A module of this package."""

    INPUTS: int
    IS_JSON: bool
    check: Check

    def seeds(self) -> Iterable[bytes]:
        """Return the inputs to start with."""


def load(name: str) -> Target:
    """Return the target *name*."""
    return cast(Target, import_module(f"fuzz.targets.{name}"))


def words() -> list[str]:
    """Return the annotation keys and other names of the wire format, which chance would hardly write."""
    from hamicommon.wire import keys

    return sorted({text for name, text in vars(keys).items() if name.isupper() and isinstance(text, str)})

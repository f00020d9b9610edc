"""
Defects that the campaign must find: each lets the next start forget what a killed process left.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Defect:
    """A careless change, and the point at which it shows."""

    part: str
    """The service that has it."""
    function: str
    """The function that it changes, `module:name` or `module:class.name`."""
    changed: Callable[[Callable[..., Any]], Callable[..., Any]]
    """Returns what takes its place."""
    step: str
    """Of the point at which the service is killed."""
    sign: str
    """What one of the sentences by which it is found contains."""

    @property
    def change(self) -> str:
        """Where `testbed.launch.changed` finds the change."""
        return f"{self.changed.__module__}:{self.changed.__name__}"


def left_out(_: Callable[..., Any]) -> Callable[..., Any]:
    """Do nothing."""

    def called(*_: Any, **__: Any) -> None:
        pass

    return called


def empty(_: Callable[..., Any]) -> Callable[..., Any]:
    """Read nothing."""

    def called(*_: Any) -> tuple[()]:
        return ()

    return called


DEFECTS = {
    "unfinished specs stay": Defect(
        "plugin",
        "hami_device_plugin.adapters.cdi_files:remove_temporaries",
        left_out,
        "the spec gets its name",
        "temporary file",
    ),
    "the journal is not read": Defect(
        "plugin",
        "hami_device_plugin.adapters.mig_journal:JournalFile.read",
        empty,
        "the Pod names its instances",
        "the journal has the instances",
    ),
    "namespaces of ended Pods stay": Defect(
        "plugin",
        "hami_device_plugin.serve.namespaces:is_ours",
        left_out,
        "clients of MPS are counted",
        "MPS has namespaces with",
    ),
    "locks are not tidied": Defect(
        "scheduler",
        "hami_scheduler.bind.locking:NodeLocks.tidy",
        left_out,
        "the Binding is sent",
        "lock",
    ),
}
"""By name."""

"""
Defects that the soak must find. `testbed.launch.changed` plants them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_leaked: list[Any] = []


@dataclass(frozen=True)
class Defect:
    """A careless change."""

    part: str
    """The service that has it."""
    signs: tuple[str, ...]
    """The begins of the sentences by which it is found."""
    function: str
    """The function that it changes, `module:name` or `module:class.name`."""
    changed: Callable[[Callable[..., Any]], Callable[..., Any]]
    """Returns what takes its place."""


def _doubled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a container twice the memory."""

    def called(*arguments: Any) -> Any:
        found = function(*arguments)
        limit = found.get("CUDA_DEVICE_MEMORY_LIMIT_0", "0m")
        return {**found, "CUDA_DEVICE_MEMORY_LIMIT_0": f"{2 * int(limit.removesuffix('m'))}m"}

    return called


def _left_out(_: Callable[..., Any]) -> Callable[..., Any]:
    """Do nothing."""

    def called(*_: Any) -> None:
        pass

    return called


def _leaking(function: Callable[..., Any]) -> Callable[..., Any]:
    """Open a file with each answer, and never close it."""

    def called(*arguments: Any, **keywords: Any) -> Any:
        _leaked.append(open("/dev/null"))  # noqa: PTH123, SIM115 - this is the defect
        return function(*arguments, **keywords)

    return called


DEFECTS = {
    "a container gets twice its memory": Defect(
        "plugin",
        ("environment:",),
        "hami_device_plugin.decide.allocate.allocation:share_environment",
        _doubled,
    ),
    "a grant is not counted": Defect(
        "scheduler",
        ("memory:", "cores:", "exclusive:", "count:"),
        "hami_scheduler.state.ledger:Ledger._apply",
        _left_out,
    ),
    "a file stays open": Defect("webhook", ("grows: descriptors",), "prometheus_client:Histogram.observe", _leaking),
}
"""By name."""

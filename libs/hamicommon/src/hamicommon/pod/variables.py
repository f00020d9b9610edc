"""
The variables of a container that change what the library does for it.

The Pod's author, or the webhook for him, writes them; they reach the library through its process or the limits file.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/docs/config.md
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from hamicommon.wire.go.strconv import parse_bool

TASK_PRIORITY: Final = "CUDA_TASK_PRIORITY"
"""The container's priority on its devices; 0 is the highest. The webhook writes it."""
DEFAULT_PRIORITY: Final = 1
"""The library's default, for a container that sets none."""
DISABLE_CONTROL: Final = "CUDA_DISABLE_CONTROL"
"""If any of its entries is true, the container gets no library, as in HAMi."""
CORE_POLICY: Final = "GPU_CORE_UTILIZATION_POLICY"
"""When the compute limit applies: `default` beside other containers, `force` always, `disable` never."""
CHOICES: Final = frozenset({CORE_POLICY, TASK_PRIORITY})
"""Those by which an author may loosen a limit."""

_PRIORITY: Final = re.compile(r"[+-]?[0-9]{1,9}")


def choices_of(env: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """
    Return the variables in a container's *env* among CHOICES that have a value.

    The last entry of a name counts, as for the kubelet. A value from a ConfigMap or Secret is unknown.

    >>> name = {"name": "CUDA_TASK_PRIORITY"}
    >>> choices_of([name | {"value": "0"}, name | {"value": "2"}]), choices_of([name | {"valueFrom": {}}])
    ({'CUDA_TASK_PRIORITY': '2'}, {})
    """
    last = {str(entry.get("name")): entry for entry in env if entry.get("name") in CHOICES}
    return {name: str(entry["value"]) for name, entry in last.items() if entry.get("value")}


def priority_of(choices: Mapping[str, str]) -> int | None:
    """Return the priority among *choices*, None if they have none or it is no number."""
    text = choices.get(TASK_PRIORITY, "")
    return int(text) if _PRIORITY.fullmatch(text) else None


def is_control_disabled(env: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether the author of a container with this *env* switched the library off."""
    values = (entry.get("value") for entry in env if entry.get("name") == DISABLE_CONTROL)
    return any(parse_bool(str(value or "")) for value in values)

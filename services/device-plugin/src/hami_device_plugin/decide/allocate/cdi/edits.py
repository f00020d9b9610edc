"""
Read, join and write the changes of a container that a CDI spec describes.

Owns what happens when two changes meet: of two values for one variable, path or field, the later counts. Fields that
this module does not know are kept, because later versions of CDI have more.
Neighbours: `driver` and `spec` use it.
Source: https://github.com/cncf-tags/container-device-interface/blob/v1.0.1/SPEC.md
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hamicommon.errors import HamiError

Json = Mapping[str, Any]

_KNOWN = frozenset({"env", "deviceNodes", "mounts", "hooks"})


class SpecError(HamiError):
    """A CDI spec is not of the form that CDI defines."""


@dataclass(frozen=True, slots=True)
class Edits:
    """Changes of a container."""

    env: Mapping[str, str] = field(default_factory=dict)
    device_nodes: Mapping[str, Json] = field(default_factory=dict)
    """By path in the container."""
    mounts: Mapping[str, Json] = field(default_factory=dict)
    """By path in the container."""
    hooks: tuple[Json, ...] = ()
    """In the order in which they run, none of them twice."""
    others: Json = field(default_factory=dict)
    """The remaining fields, such as `additionalGids`."""

    def __add__(self, later: "Edits") -> "Edits":
        """Return both, *later* last."""
        return Edits(
            env={**self.env, **later.env},
            device_nodes={**self.device_nodes, **later.device_nodes},
            mounts={**self.mounts, **later.mounts},
            hooks=(*self.hooks, *(hook for hook in later.hooks if hook not in self.hooks)),
            others={**self.others, **{name: _joined(self.others.get(name), new) for name, new in later.others.items()}},
        )


def decode_edits(content: Any, place: str) -> Edits:
    """
    Return the edits in *content*, a spec's `containerEdits`; an error names *place*.

    Raises:
        SpecError: it has another form.
    """
    if not isinstance(content, dict):
        raise SpecError(f"{place} is not an object")
    return Edits(
        env=dict(_variable(entry, place) for entry in _list(content, "env", place)),
        device_nodes=_by_path(content, "deviceNodes", "path", place),
        mounts=_by_path(content, "mounts", "containerPath", place),
        hooks=_distinct(_list(content, "hooks", place), place),
        others={name: value for name, value in content.items() if name not in _KNOWN},
    )


def encode_edits(edits: Edits) -> dict[str, Any]:
    """
    Return *edits* as a spec has them, without empty lists.

    Parent mounts come before their children, because not every runtime sorts them.
    """
    fields = {
        "env": [f"{name}={value}" for name, value in edits.env.items()],
        "deviceNodes": list(edits.device_nodes.values()),
        "mounts": sorted(edits.mounts.values(), key=lambda mount: str(mount["containerPath"]).rstrip("/").count("/")),
        "hooks": list(edits.hooks),
    }
    return {**edits.others, **{name: entries for name, entries in fields.items() if entries}}


def _list(content: dict[str, Any], name: str, place: str) -> list[Any]:
    entries = content.get(name) or []
    if not isinstance(entries, list):
        raise SpecError(f"{place}.{name} is not a list")
    return entries


def _variable(entry: Any, place: str) -> tuple[str, str]:
    name, separator, value = entry.partition("=") if isinstance(entry, str) else ("", "", "")
    if not name or not separator:
        raise SpecError(f"{place}.env: {entry!r} is not NAME=VALUE")
    return name, value


def _by_path(content: dict[str, Any], name: str, key: str, place: str) -> dict[str, Json]:
    found = {}
    for entry in _list(content, name, place):
        path = entry.get(key) if isinstance(entry, dict) else None
        if not isinstance(path, str) or not path:
            raise SpecError(f"{place}.{name}: {entry!r} has no {key}")
        found[path] = entry
    return found


def _distinct(hooks: list[Any], place: str) -> tuple[Json, ...]:
    found: list[Json] = []
    for hook in hooks:
        if not isinstance(hook, dict) or not isinstance(hook.get("path"), str):
            raise SpecError(f"{place}.hooks: {hook!r} has no path")
        if hook not in found:
            found.append(hook)
    return tuple(found)


def _joined(former: Any, later: Any) -> Any:
    """Return two lists as one without repetitions; of any other values the later."""
    if isinstance(former, list) and isinstance(later, list):
        return [*former, *(entry for entry in later if entry not in former)]
    return later

"""
The JSON that `python -m hamicommon` prints, with units in the names.

It is not a wire format: no service writes or reads it. Values without a function here are shown field by field.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from json import JSONEncoder
from typing import Any, Final

from hamicommon.model import NodeLock
from hamicommon.wire.go.times import format_rfc3339
from hamicommon.wire.handshake import Handshake
from hamicommon.wire.region.codec import Region
from hamicommon.wire.region.trace import Traced, TracedLaunch


def lock_shape(lock: NodeLock) -> dict[str, Any]:
    """Return a node lock; a lock without owner has null names."""
    return {"time": format_rfc3339(lock.time), "namespace": lock.namespace, "pod": lock.pod}


def handshake_shape(handshake: Handshake) -> dict[str, Any]:
    """Return a handshake; its time is the writer's local time."""
    return {
        "state": handshake.state.value,
        "time": str(handshake.time),
        "layout": handshake.layout.name.lower(),
        "rest": handshake.rest,
    }


def region_shape(region: Region) -> dict[str, Any]:
    """Return a region; device indexes are keys, as text."""
    shape = {each.name: getattr(region, each.name) for each in fields(region)}
    shape["slots"] = [
        {
            **{name: getattr(slot, name) for name in ("index", "pid", "host_pid", "status", "seqlock")},
            "memory_bytes": _by_device(slot.memory),
            "monitor_used_bytes": {str(device): used for device, used in slot.monitor_used_bytes.items()},
            "utilization_percent": None if slot.utilization is None else _by_device(slot.utilization),
        }
        for slot in region.slots
    ]
    return shape


def trace_shape(entry: Traced) -> dict[str, Any]:
    """Return one entry of a trace; only a launch has the keys `paid` and `waited_us`."""
    shape: dict[str, Any] = {
        "number": entry.number,
        "at_seconds": entry.at_nanoseconds / 1e9,
        "pid": entry.pid,
        "device": entry.device,
        "kind": f"{entry.kind:016x}",
        "paid_us": entry.paid_nanoseconds / 1e3,
    }
    if isinstance(entry, TracedLaunch):
        return shape | {
            "entry": "launch",
            "stream": f"{entry.stream:x}",
            "paid": entry.paid,
            "waited_us": dict(entry.waited_microseconds),
        }
    return shape | {"entry": "interval", "launches": entry.launches, "cost_us": entry.cost_nanoseconds / 1e3}


def _by_device(records: Mapping[int, Any]) -> dict[str, Any]:
    return {str(device): asdict(record) for device, record in records.items()}


def one_line(value: Any) -> Iterator[str]:
    """
    Yield *value* as one line of JSON with sorted keys, in parts, so that a long list is never one text in memory.

    >>> "".join(one_line([{"b": 1, "a": "x"}]))
    '[{"a": "x", "b": 1}]'
    """
    for part in _ENCODER.iterencode(value):
        yield part.translate(_LINE_ENDS)


_ENCODER: Final = JSONEncoder(ensure_ascii=False, sort_keys=True)
_LINE_ENDS: Final = {ord(character): f"\\u{ord(character):04x}" for character in "\x85\u2028\u2029"}

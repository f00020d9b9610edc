"""
The JSON that `python -m hamicommon` prints and takes, with units in the names.

It is not a wire format: no service writes it. A misspelt key is an error.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from json import JSONEncoder
from typing import Any, Final

from hamicommon.model import (
    Device,
    MigAllocation,
    MigPlacement,
    MigProfile,
    NodeLock,
    PodShares,
    ScoringWeights,
    Share,
)
from hamicommon.wire.errors import WHOLE_TEXT, DecodeError, quote
from hamicommon.wire.go import json_reader as json
from hamicommon.wire.go.times import format_rfc3339, parse_local, parse_rfc3339
from hamicommon.wire.handshake import Handshake, HandshakeLayout, HandshakeState
from hamicommon.wire.region import Region
from hamicommon.wire.region.trace import Traced, TracedLaunch

_ANY_INTEGER: Final = json.whole_number(64)


def device_shape(device: Device) -> dict[str, Any]:
    """Return one device of an inventory."""
    return {
        "id": device.id,
        "index": device.index,
        "count": device.count,
        "memory_mib": device.memory_mib,
        "core_percent": device.core_percent,
        "type": device.type,
        "numa": device.numa,
        "mode": device.mode,
        "healthy": device.healthy,
        "vendor": device.vendor,
        "mig_profiles": [asdict(profile) | {"placements": _placements(profile)} for profile in device.mig_profiles],
        "custom": dict(device.custom),
        "finds_owners": device.finds_owners,
    }


def container_shape(shares: tuple[Share, ...]) -> list[dict[str, Any]]:
    """Return the shares of one container."""
    return [asdict(share) for share in shares]


def allocation_shape(allocation: MigAllocation) -> dict[str, Any]:
    """Return one MIG allocation; what does not exist yet is null."""
    return asdict(allocation)


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


def weights_shape(weights: ScoringWeights) -> dict[str, Any]:
    """Return scoring weights."""
    return asdict(weights)


def region_shape(region: Region) -> dict[str, Any]:
    """Return a region; device indexes are keys, as text."""
    shape = {name: getattr(region, name) for name in _REGION_FIELDS}
    shape["slots"] = [
        {
            "index": slot.index,
            "pid": slot.pid,
            "host_pid": slot.host_pid,
            "status": slot.status,
            "seqlock": slot.seqlock,
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


_REGION_FIELDS: Final = (
    "layout",
    "major",
    "minor",
    "sm_init_flag",
    "owner_pid",
    "lock_value",
    "postinit_lock_value",
    "device_count",
    "uuids",
    "memory_limits_bytes",
    "sm_limits_percent",
    "priority",
    "utilization_switch",
    "recent_kernel",
    "last_kernel_time",
)


def _by_device(records: Mapping[int, Any]) -> dict[str, Any]:
    return {str(device): asdict(record) for device, record in records.items()}


def _placements(profile: MigProfile) -> list[dict[str, int]]:
    return [{"start": placement.start, "size": placement.size} for placement in profile.placements]


_PLACEMENT: Final = json.struct(
    MigPlacement(0, 0), {"start": ("start", _ANY_INTEGER), "size": ("size", _ANY_INTEGER)}, is_closed=True
)
_DEVICES: Final = json.array(
    json.struct(
        Device("", 0, 0, 0, ""),
        {
            "id": ("id", json.string),
            "index": ("index", json.whole_number(64, signed=False)),
            "count": ("count", json.whole_number(32)),
            "memory_mib": ("memory_mib", json.whole_number(32)),
            "core_percent": ("core_percent", json.whole_number(32)),
            "type": ("type", json.string),
            "numa": ("numa", _ANY_INTEGER),
            "mode": ("mode", json.string),
            "healthy": ("healthy", json.truth),
            "vendor": ("vendor", json.string),
            "mig_profiles": (
                "mig_profiles",
                json.array(
                    json.struct(
                        MigProfile("", 0, 0, 0),
                        {
                            "name": ("name", json.string),
                            "memory_mib": ("memory_mib", json.whole_number(32)),
                            "core_percent": ("core_percent", json.whole_number(32)),
                            "slice_count": ("slice_count", json.whole_number(32, signed=False)),
                            "placements": ("placements", json.array(_PLACEMENT)),
                        },
                        is_closed=True,
                    )
                ),
            ),
            "custom": ("custom", json.mapping(json.anything)),
            "finds_owners": ("finds_owners", json.truth),
        },
        is_closed=True,
    )
)
_POD: Final = json.array(
    json.array(
        json.struct(
            Share("", "", 0, 0),
            {
                "uuid": ("uuid", json.string),
                "type": ("type", json.string),
                "memory_mib": ("memory_mib", json.whole_number(32)),
                "core_percent": ("core_percent", json.whole_number(32)),
            },
            is_closed=True,
        )
    )
)
_ALLOCATIONS: Final = json.array(
    json.struct(
        MigAllocation(0, 0, "", "", MigPlacement(0, 0)),
        {
            "container_index": ("container_index", _ANY_INTEGER),
            "device_index": ("device_index", _ANY_INTEGER),
            "gpu_uuid": ("gpu_uuid", json.string),
            "profile": ("profile", json.string),
            "placement": ("placement", _PLACEMENT),
            "mig_uuid": ("mig_uuid", json.optional(json.string)),
            "gpu_instance_id": ("gpu_instance_id", json.optional(_ANY_INTEGER)),
            "compute_instance_id": ("compute_instance_id", json.optional(_ANY_INTEGER)),
        },
        is_closed=True,
    )
)
_WEIGHTS: Final = json.struct(
    ScoringWeights(),
    {name: (name, json.whole_number(64, signed=False)) for name in ("slot", "core", "memory")},
    is_closed=True,
)


@dataclass(frozen=True, slots=True)
class _Lock:
    time: str = ""
    namespace: str | None = None
    pod: str | None = None


@dataclass(frozen=True, slots=True)
class _Note:
    state: str = ""
    time: str = ""
    layout: str = "dashed"
    rest: str = ""


_LOCK: Final = json.struct(
    _Lock(),
    {
        "time": ("time", json.string),
        "namespace": ("namespace", json.optional(json.string)),
        "pod": ("pod", json.optional(json.string)),
    },
    is_closed=True,
)
_NOTE: Final = json.struct(
    _Note(), {name: (name, json.string) for name in ("state", "time", "layout", "rest")}, is_closed=True
)


def read_devices(text: str) -> tuple[Device, ...]:
    """Return the devices that *text*, a list of `device_shape`, describes; absent keys are empty or zero."""
    devices: tuple[Device, ...] = _present(text, _DEVICES)
    return devices


def read_pod(text: str) -> PodShares:
    """Return the shares that *text*, a list of `container_shape`, describes."""
    pod: PodShares = _present(text, _POD)
    return pod


def read_allocations(text: str) -> tuple[MigAllocation, ...]:
    """Return the allocations that *text*, a list of `allocation_shape`, describes."""
    allocations: tuple[MigAllocation, ...] = _present(text, _ALLOCATIONS)
    return allocations


def read_lock(text: str) -> NodeLock:
    """Return the lock that *text*, a `lock_shape`, describes."""
    lock: _Lock = _present(text, _LOCK)
    return NodeLock(parse_rfc3339(lock.time, "field time"), lock.namespace, lock.pod)


def read_weights(text: str) -> ScoringWeights:
    """Return the weights that *text*, a `weights_shape`, describes."""
    weights: ScoringWeights = _present(text, _WEIGHTS)
    return weights


def read_handshake(text: str) -> Handshake:
    """Return the handshake that *text*, a `handshake_shape`, describes."""
    note: _Note = _present(text, _NOTE)
    time = parse_local(note.time, "field time")
    states = {state.value: state for state in HandshakeState}
    layouts = {layout.name.lower(): layout for layout in HandshakeLayout}
    for name, value, known in (("state", note.state, states), ("layout", note.layout, layouts)):
        if value not in known:
            raise DecodeError(f"field {name}", f"{quote(value)} is not one of {', '.join(known)}")
    return Handshake(states[note.state], time, layouts[note.layout], note.rest)


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


def _present(text: str, kind: json.Kind) -> Any:
    """Read *text*, for which `null` is no value."""
    if text.strip() == "null":
        raise DecodeError(WHOLE_TEXT, "null is no value")
    return json.decode(text, kind)

"""
The Node annotation with the faults of devices, `hami.io/device-faults`.

It tells people why a device is unhealthy, and the next process what this one knew:
`{"GPU-a":{"xid":{"reason":"XID 48","since":"2026-11-25T01:00:00Z","load":"…"}}}`. It changes only when a fault does.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from hami_device_plugin.decide.health.condition import Condition
from hami_device_plugin.decide.health.faults import Cause, Fault

ALL = "all"


def encode_faults(conditions: Mapping[str, Condition]) -> str | None:
    """Return the annotation for the conditions by UUID; None if no device has a fault."""
    faulty = {
        uuid: {cause.value: _fields(fault) for cause, fault in condition.faults.items()}
        for uuid, condition in sorted(conditions.items())
        if not condition.is_healthy
    }
    return json.dumps(faulty, separators=(",", ":")) if faulty else None


def decode_faults(text: str, now: datetime) -> dict[str, Condition]:
    """
    Return the conditions in the annotation *text*, by UUID; their probation starts *now*.

    Whatever is not in the annotation's form is left out: a fault that still exists is soon seen again.
    """
    try:
        root = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    entries = root.items() if isinstance(root, dict) else ()
    found = {uuid: _condition(entry, now) for uuid, entry in entries if isinstance(entry, dict)}
    return {uuid: condition for uuid, condition in found.items() if not condition.is_healthy}


def restored(text: str, uuid: str) -> bool:
    """
    Return whether the annotation `hami.io/device-restore` with *text* names *uuid*.

    >>> restored("GPU-a, GPU-b", "GPU-b"), restored("all", "GPU-b"), restored("", "GPU-b")
    (True, True, False)
    """
    names = {name.strip() for name in text.split(",")}
    return uuid in names or ALL in names


def _fields(fault: Fault) -> dict[str, Any]:
    fields: dict[str, Any] = {"reason": fault.reason, "since": f"{fault.since.replace(tzinfo=None):%Y-%m-%dT%H:%M:%S}Z"}
    return fields | {"load": fault.load} | ({"detail": fault.detail} if fault.detail else {})


def _condition(entry: Mapping[str, Any], now: datetime) -> Condition:
    faults = {cause: fault for cause in Cause if (fault := _fault(entry.get(cause.value), now)) is not None}
    ecc = faults[Cause.ECC].detail if Cause.ECC in faults else ()
    links = faults[Cause.NVLINK].detail if Cause.NVLINK in faults else ()
    return Condition(faults, ecc[0] if ecc else None, frozenset(links))


def _fault(fields: Any, now: datetime) -> Fault | None:
    try:
        since = datetime.strptime(fields["since"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        detail = tuple(int(number) for number in fields.get("detail", ()))
        return Fault(str(fields["reason"]), since, now, str(fields["load"]), detail)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None

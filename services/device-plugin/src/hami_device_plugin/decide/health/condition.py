"""
Decide which faults a device has, from what was known and a new reading.

A device is healthy if it has no fault. Each cause ends by its rule in `faults`. A device that does not answer keeps its
faults. A reset ends all of them at once; these show one:
the device was lost and answers again, the driver no longer asks for a reset, the count of memory errors has gone down,
or the driver has been loaded again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from hami_device_plugin.decide.health.faults import RECOVERY, Cause, Fault, Recovery
from hami_device_plugin.decide.health.xids import PASSING_XIDS, HealthPolicy


@dataclass(frozen=True, slots=True)
class Reading:
    """What the driver says about a device now."""

    problem: tuple[Cause, str] | None = None
    """Why it cannot be read: LOST, UNREADABLE or SILENT, and the driver's words. None if it answers."""
    xids: tuple[int, ...] = ()
    """What it reported since the last reading."""
    ecc_uncorrected: int | None = None
    """Uncorrectable memory errors since the last reset; None if it does not count them."""
    links_up: frozenset[int] | None = None
    """Its NVLinks that are up; None if it has none."""
    action: str = ""
    """What the driver says it needs: a reset or a reboot; empty: nothing."""


@dataclass(frozen=True, slots=True)
class Condition:
    """What is known of a device."""

    faults: Mapping[Cause, Fault] = field(default_factory=dict)
    ecc_uncorrected: int | None = None
    """Errors that are known; None before the first reading."""
    links: frozenset[int] = frozenset()
    """Links that have been up."""

    @property
    def is_healthy(self) -> bool:
        """Whether it has no fault."""
        return not self.faults

    def reason(self) -> str:
        """Return why it is unhealthy."""
        return "; ".join(fault.reason for fault in self.faults.values())

    def recovery(self) -> str:
        """Return what makes it healthy again; empty if it is."""
        return "; ".join(dict.fromkeys(RECOVERY[cause].value for cause in self.faults))


def observe(before: Condition, reading: Reading, policy: HealthPolicy, now: datetime, load: str) -> Condition:
    """Return the condition of a device after *reading*, under the *load* of the driver."""
    is_reset = reading.problem is None and _is_reset(before, reading, load)
    seen = {cause: Fault(reason, now, now, load, detail) for cause, reason, detail in _seen(before, reading, policy)}
    left = {
        cause: fault
        for cause, fault in before.faults.items()
        if cause not in seen and not _is_over(cause, fault, reading, policy, now, is_reset=is_reset)
    }
    return Condition(
        faults=left | {cause: _since(before.faults.get(cause), fault) for cause, fault in seen.items()},
        ecc_uncorrected=before.ecc_uncorrected if reading.ecc_uncorrected is None else reading.ecc_uncorrected,
        links=before.links | (reading.links_up or frozenset()),
    )


def _seen(before: Condition, reading: Reading, policy: HealthPolicy) -> Iterator[tuple[Cause, str, tuple[int, ...]]]:
    """Yield each cause that *reading* shows, with its reason and detail."""
    if reading.problem is not None:
        yield *reading.problem, ()
    critical = [xid for xid in reading.xids if policy.is_critical(xid)]
    for cause, xids in (
        (Cause.XID, [xid for xid in critical if xid not in PASSING_XIDS]),
        (Cause.PASSING_XID, [xid for xid in critical if xid in PASSING_XIDS]),
    ):
        if xids:
            yield cause, ", ".join(f"XID {xid}" for xid in dict.fromkeys(xids)), ()
    if reading.action:
        yield Cause.RESET_REQUIRED, f"the driver asks for: {reading.action}", ()
    known, count = before.ecc_uncorrected, reading.ecc_uncorrected
    if known is not None and count is not None and count > known:
        yield Cause.ECC, f"{count} uncorrectable memory errors, {known} before", (count,)
    down = before.links - reading.links_up if reading.links_up is not None else frozenset()
    if down:
        yield Cause.NVLINK, f"NVLinks are down: {', '.join(map(str, sorted(down)))}", tuple(sorted(down))


def _is_reset(before: Condition, reading: Reading, load: str) -> bool:
    """Return whether the device was reset since its faults were seen."""
    known, count = before.ecc_uncorrected, reading.ecc_uncorrected
    return (
        Cause.LOST in before.faults
        or (Cause.RESET_REQUIRED in before.faults and not reading.action)
        or (known is not None and count is not None and count < known)
        or any(fault.load != load for fault in before.faults.values())
    )


def _is_over(
    cause: Cause, fault: Fault, reading: Reading, policy: HealthPolicy, now: datetime, *, is_reset: bool
) -> bool:
    """Return whether *fault*, which *reading* does not show, has ended."""
    if reading.problem is not None:
        return False
    if is_reset or RECOVERY[cause] is Recovery.ANSWER:
        return True
    return RECOVERY[cause] is Recovery.PROBATION and now - fault.last >= policy.probation


def _since(old: Fault | None, fault: Fault) -> Fault:
    """Return *fault* as it goes on, if *old* was the same."""
    return fault if old is None else Fault(fault.reason, old.since, fault.last, fault.load, fault.detail)

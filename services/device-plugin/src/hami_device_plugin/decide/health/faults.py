"""
Why a device is unhealthy, and what makes it healthy again: one rule for each cause.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum


class Recovery(Enum):
    """What makes a device healthy again, besides a reset and an operator's word; the value tells people."""

    ANSWER = "when the driver answers that it is well"
    PROBATION = "after a probation without this"
    RESET = "after a reset of the device, or by the Node annotation hami.io/device-restore"


class Cause(Enum):
    """Why a device is unhealthy; the value is its name in the annotation and the metrics."""

    LOST = "lost"
    """It has fallen off the bus, or the driver does not show it any more."""
    UNREADABLE = "unreadable"
    """The driver returns an error for it."""
    SILENT = "silent"
    """A call for it did not return in time."""
    RESET_REQUIRED = "reset-required"
    """The driver says that it needs a reset, or a reboot of the Node."""
    XID = "xid"
    """It reported an XID that only a reset ends."""
    PASSING_XID = "passing-xid"
    """It reported an XID that ends with the program."""
    ECC = "ecc"
    """It counted more uncorrectable memory errors."""
    NVLINK = "nvlink"
    """Links that were up are down."""


RECOVERY: Mapping[Cause, Recovery] = {
    Cause.LOST: Recovery.ANSWER,
    Cause.UNREADABLE: Recovery.PROBATION,
    Cause.SILENT: Recovery.ANSWER,
    Cause.RESET_REQUIRED: Recovery.ANSWER,
    Cause.XID: Recovery.RESET,
    Cause.PASSING_XID: Recovery.PROBATION,
    Cause.ECC: Recovery.RESET,
    Cause.NVLINK: Recovery.PROBATION,
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One cause for which a device is unhealthy."""

    reason: str
    """What was seen, in a few words."""
    since: datetime
    last: datetime
    """When the cause was last seen."""
    load: str
    """Which load of the driver it was last seen under; after another load the device was reset."""
    detail: tuple[int, ...] = ()
    """For ECC the count, for NVLINK the links that are down."""

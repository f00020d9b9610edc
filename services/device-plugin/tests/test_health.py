"""
Which faults a device has, and what ends each.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from hami_device_plugin.decide.health.condition import Condition, Reading, observe
from hami_device_plugin.decide.health.faults import Cause
from hami_device_plugin.decide.health.record import decode_faults, encode_faults
from hami_device_plugin.decide.health.xids import HealthPolicy
from hami_device_plugin.decide.inventory import SharingPolicy, missing_devices
from hamicommon.model import Device

NOON = datetime(2026, 8, 21, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
POLICY = HealthPolicy(probation=5 * MINUTE)
LOST = Reading(problem=(Cause.LOST, "the driver says: GPU is lost"))
UNREADABLE = Reading(problem=(Cause.UNREADABLE, "the driver says: Unknown Error"))
SILENT = Reading(problem=(Cause.SILENT, "no answer"))
WELL = Reading(ecc_uncorrected=0, links_up=frozenset({0, 1}))


def after(readings: Sequence[Reading], *, minutes: float = 1, loads: Sequence[str] = ()) -> Condition:
    """Return the condition after *readings*, one each *minutes*; the last of *loads* holds on."""
    condition = Condition()
    for number, reading in enumerate(readings):
        load = loads[min(number, len(loads) - 1)] if loads else "1"
        condition = observe(condition, reading, POLICY, NOON + number * minutes * MINUTE, load)
    return condition


@pytest.mark.parametrize(
    ("reading", "cause", "reason"),
    [
        pytest.param(LOST, Cause.LOST, "the driver says: GPU is lost", id="lost"),
        pytest.param(UNREADABLE, Cause.UNREADABLE, "the driver says: Unknown Error", id="unreadable"),
        pytest.param(SILENT, Cause.SILENT, "no answer", id="silent"),
        pytest.param(Reading(xids=(48, 48, 95)), Cause.XID, "XID 48, XID 95", id="XID"),
        pytest.param(Reading(xids=(94,)), Cause.PASSING_XID, "XID 94", id="passing XID"),
        pytest.param(Reading(ecc_uncorrected=2), Cause.ECC, "2 uncorrectable memory errors, 0 before", id="ECC"),
        pytest.param(Reading(links_up=frozenset({0})), Cause.NVLINK, "NVLinks are down: 1", id="NVLink"),
        pytest.param(
            Reading(action="a reset of the GPU"),
            Cause.RESET_REQUIRED,
            "the driver asks for: a reset of the GPU",
            id="reset",
        ),
    ],
)
def test_each_cause_makes_a_device_unhealthy_with_its_reason(reading: Reading, cause: Cause, reason: str) -> None:
    """At the first reading that shows it."""
    condition = after([WELL, reading])

    assert ([cause], reason) == (list(condition.faults), condition.reason())


def test_what_was_there_before_the_first_reading_is_not_a_fault() -> None:
    """Memory errors since the last reset, and links that are not used."""
    assert after([Reading(ecc_uncorrected=7, links_up=frozenset({0}))] * 2).is_healthy


def test_xid_of_a_program_is_not_a_fault() -> None:
    """HAMi's list of application errors."""
    assert after([WELL, Reading(xids=(31, 43))]).is_healthy


@pytest.mark.parametrize("bad", [UNREADABLE, Reading(xids=(94,)), Reading(links_up=frozenset({0}))])
def test_passing_fault_ends_after_its_probation(bad: Reading) -> None:
    """The boundary is the probation's: at five minutes without the cause, not a moment before."""
    assert not after([WELL, bad, WELL], minutes=4.99).is_healthy
    assert after([WELL, bad, WELL], minutes=5).is_healthy


@pytest.mark.parametrize("bad", [LOST, SILENT, Reading(action="a reset of the GPU")])
def test_fault_that_the_driver_ends_has_no_probation(bad: Reading) -> None:
    """Its next good answer is enough."""
    assert after([WELL, bad, WELL], minutes=0).is_healthy


def test_probation_starts_again_with_each_occurrence() -> None:
    """A device that fails every four minutes stays unhealthy."""
    assert not after([WELL, *[Reading(xids=(94,)), WELL] * 5], minutes=4).is_healthy


@pytest.mark.parametrize("bad", [Reading(xids=(48,)), Reading(ecc_uncorrected=1)])
def test_lasting_fault_does_not_end_by_itself(bad: Reading) -> None:
    """Only a reset or an operator ends it."""
    same = Reading(ecc_uncorrected=bad.ecc_uncorrected or 0)

    assert not after([WELL, bad, *[same] * 3], minutes=600).is_healthy


@pytest.mark.parametrize(
    "readings",
    [
        pytest.param([WELL, Reading(xids=(48,)), LOST, WELL], id="lost and back"),
        pytest.param([WELL, Reading(ecc_uncorrected=3), WELL], id="fewer memory errors"),
        pytest.param([WELL, Reading(xids=(119,), action="a reset of the GPU"), WELL], id="no reset asked for any more"),
    ],
)
def test_reset_ends_every_fault(readings: list[Reading]) -> None:
    """Each of these is seen only after a reset."""
    assert after(readings, minutes=0).is_healthy


def test_driver_that_was_loaded_again_has_reset_the_device() -> None:
    """It may have another version, or be of another boot."""
    readings = [WELL, Reading(xids=(48,)), WELL]

    assert not after(readings, loads=["1"]).is_healthy
    assert after(readings, loads=["1", "1", "2"]).is_healthy


def test_device_that_does_not_answer_keeps_its_faults() -> None:
    """A fault is over only when the device can be read."""
    condition = after([WELL, Reading(xids=(94,)), *[LOST] * 3], minutes=10)

    assert {Cause.PASSING_XID, Cause.LOST} == condition.faults.keys()


def test_fault_says_since_when() -> None:
    """And goes on as one while it is seen."""
    assert NOON + MINUTE == after([WELL, LOST, LOST, LOST]).faults[Cause.LOST].since


def test_record_keeps_what_the_next_process_needs() -> None:
    """The faults with their reason, and the counts and links from which their end is seen."""
    conditions = {
        "GPU-a": after([WELL, Reading(xids=(48,), ecc_uncorrected=3, links_up=frozenset({0}))]),
        "GPU-b": after([WELL]),
    }
    found = decode_faults(encode_faults(conditions) or "", NOON + MINUTE)

    assert {"GPU-a"} == set(found)
    assert conditions["GPU-a"].faults == found["GPU-a"].faults
    assert (3, frozenset({1})) == (found["GPU-a"].ecc_uncorrected, found["GPU-a"].links)
    assert encode_faults({"GPU-b": conditions["GPU-b"]}) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"GPU-a":3}',
        '{"GPU-a":{"xid":{"reason":"XID 48"}}}',
        '{"GPU-a":{"xid":[]}}',
        '{"GPU-a":{"no":1}}',
    ],
)
def test_record_that_cannot_be_read_says_nothing(text: str) -> None:
    """Anyone who may annotate the Node can write it."""
    assert {} == decode_faults(text, NOON)


def test_device_without_an_answer_stays_in_the_inventory() -> None:
    """It is the one at its index, or had a fault; one that is just gone was taken out, and a filtered one stays out."""
    known = [Device(f"GPU-{index}", 2, 100, 100, "NVIDIA T4", index=index, healthy=True) for index in range(5)]
    kept = missing_devices(
        known,
        found={"GPU-0"},
        unread={1, 4},
        faulty={"GPU-2"},
        policy=SharingPolicy(split_count=2, excluded_indices=frozenset({4})),
    )

    assert [("GPU-1", 1, False), ("GPU-2", 2, False)] == [(device.id, device.index, device.healthy) for device in kept]

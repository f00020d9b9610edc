"""
Device time survives every end of the monitor, and nothing that a tenant writes changes another's.
"""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hami_monitor.adapters.book_file import BookFile
from hami_monitor.decide.accounts.book import Book, DeviceAccount, used_parts
from hami_monitor.decide.accounts.book_text import encode_book
from hami_monitor.decide.accounts.price import Offer
from hami_monitor.decide.driver_use import DriverUse
from hami_monitor.decide.observation import ShownDevice
from hamicommon.model import Share
from hamicommon.wire.region.sums import DeviceSums
from testbed.waiting import eventually

from .accounts_life import INVENTORY
from .pod_server import PodServer, a_pod
from .region_files import HookPath, Process, a_region
from .service import Service, Start

ROOT = Path(__file__).parents[3]
MIB = 1 << 20
QUARTER = "GPU-a,NVIDIA,250,0:;"


def a_held_pod(uid: str, granted: str = QUARTER, *, began_seconds: float) -> dict[str, Any]:
    """Return a Pod that was bound at *began_seconds*."""
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began_seconds))
    bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": moment}
    return a_pod(uid, granted=granted) | {"status": {"phase": "Running", "conditions": [bound]}}


def book_path(hook_path: HookPath) -> Path:
    """Return where the monitor keeps its book."""
    return BookFile(str(hook_path.path)).path


def write_book(hook_path: HookPath, *uuids: str, until_seconds: float) -> None:
    """Leave the book of a monitor that ended at *until_seconds*, on a Node with *uuids*."""
    path = book_path(hook_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    devices = {uuid: DeviceAccount("T4", last_seconds=until_seconds) for uuid in uuids}
    path.write_bytes(encode_book(Book(until_seconds, devices=devices)))


async def sums(service: Service, name: str, label: str) -> dict[str, float]:
    """Return the values of the family *name* by *label*."""
    return {dict(labels)[label]: value for labels, value in (await service.samples()).get(name, {}).items()}


@pytest.fixture
def offering(pod_server: PodServer) -> PodServer:
    """Return a Pod API whose Node offers one device of 1000 MiB."""
    pod_server.change_node(annotations={"hami.io/node-nvidia-register": INVENTORY})
    return pod_server


async def test_four_quarters_for_an_hour_are_one_device_hour_across_a_restart(
    hook_path: HookPath, offering: PodServer, started: Start
) -> None:
    """The monitor was away for the whole hour, and the books close: nothing of the device was idle."""
    began_seconds = time.time() - 3600
    write_book(hook_path, "GPU-a", until_seconds=began_seconds - 1)
    for index in range(4):
        offering.put(a_held_pod(f"u{index}", began_seconds=began_seconds))

    async with started() as service:
        await eventually(lambda: sums(service, "hami_share_held_seconds_total", "pod"))
        held = await sums(service, "hami_share_held_seconds_total", "pod")
        idle = await sums(service, "hami_device_idle_seconds_total", "device_uuid")
        offered = await sums(service, "hami_device_offered_seconds_total", "device_uuid")

    elapsed_seconds = time.time() - began_seconds
    assert [True] * 4 == [899 <= held[f"pod-u{index}"] <= (elapsed_seconds + 1) / 4 for index in range(4)]
    assert idle == {"GPU-a": pytest.approx(1, abs=1)}
    # Offered since a second before the hour, in a book that ends two seconds ago.
    assert 3599 <= offered["GPU-a"] <= elapsed_seconds + 2


async def test_counters_never_go_back_when_the_monitor_is_killed(
    hook_path: HookPath, offering: PodServer, started: Start
) -> None:
    """Prometheus would take that for a reset, and count everything again."""
    began_seconds = time.time() - 3600
    write_book(hook_path, "GPU-a", until_seconds=began_seconds)
    offering.put(a_held_pod("u1", began_seconds=began_seconds))
    before = 0.0
    for _ in range(3):
        async with started() as service:
            await eventually(lambda: sums(service, "hami_share_held_seconds_total", "pod"))
            held = (await sums(service, "hami_share_held_seconds_total", "pod"))["pod-u1"]
            assert before <= held <= (time.time() - began_seconds) / 4
            before = held
            assert -signal.SIGKILL == await service.stop(signal.SIGKILL)


def test_killed_at_any_line_it_has_shown_nothing_that_the_next_one_does_not_know(tmp_path: Path) -> None:
    """No gap for a Pod that stays, nothing twice, no counter that goes back, and the books close."""
    command = [sys.executable, "-m", "services.monitor.tests.accounts_life", str(tmp_path)]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    lives = [json.loads(line) for line in found.stdout.splitlines()]

    assert len(lives) > 100
    for life in lives:
        after = life["after"]
        assert after["held"] + after["idle"] in (0, 1000), life["line"]
        assert after.get("pod-stays", 0) == (after["held"] + after["idle"]) / 4, life["line"]
        for shown in life["shown"]:
            assert all(after[key] >= value for key, value in shown.items()), life["line"]
        assert after.get("pod-goes", 0) in (0, 2.5, 5, 5.5), life["line"]
    assert 5.5 == lives[-1]["after"]["pod-goes"]


async def test_unreadable_file_is_said_and_counting_begins_again(
    hook_path: HookPath, offering: PodServer, started: Start
) -> None:
    """The file is kept aside for somebody to look at."""
    path = book_path(hook_path)
    path.parent.mkdir(parents=True)
    path.write_bytes(b'{"version": 1')
    began_seconds = time.time()
    offering.put(a_held_pod("u1", began_seconds=began_seconds - 3600))

    async with started() as service:
        await eventually(lambda: sums(service, "hami_share_held_seconds_total", "pod"))
        held = await sums(service, "hami_share_held_seconds_total", "pod")
        assert held["pod-u1"] <= (time.time() - began_seconds) / 4

    assert b'{"version": 1' == path.with_suffix(".unreadable").read_bytes()
    assert ["Device time is counted from zero, its file is unreadable"] == [
        line["event"] for line in service.logs if line["level"] == "error"
    ]


async def test_folder_that_cannot_be_used_hides_device_time_and_nothing_else(
    hook_path: HookPath, offering: PodServer, started: Start
) -> None:
    """What was not saved is not shown, because the next monitor would not know it."""
    hook_path.path.mkdir(parents=True, exist_ok=True)
    book_path(hook_path).parent.write_text("no folder")
    offering.put(a_held_pod("u1", began_seconds=time.time()))

    async with started() as service:
        await eventually(lambda: any("Device time" in line["event"] for line in service.logs))
        samples = await service.samples()

    assert not [name for name in samples if "held_seconds" in name or "offered" in name]
    assert {(): 0} == samples["hami_monitor_accounts_timestamp_seconds"]
    assert "hami_vgpu_memory_limit_bytes" in samples


async def test_second_monitor_waits_for_the_file(hook_path: HookPath, offering: PodServer, started: Start) -> None:
    """Two books would replace each other."""
    async with started() as first:
        await eventually(lambda: sums(first, "hami_device_offered_seconds_total", "device_uuid"))
        async with started() as second:
            await eventually(lambda: any("another monitor has it" in line.get("error", "") for line in second.logs))
            await first.stop()
            await eventually(lambda: sums(second, "hami_device_offered_seconds_total", "device_uuid"))


async def test_region_changes_the_use_of_its_own_pod_and_no_more_than_is_possible(
    hook_path: HookPath, offering: PodServer, started: Start
) -> None:
    """One container claims all that fits into its file; what it and its neighbour hold is not changed by that."""
    began_seconds = time.time()
    much = 2**63 - 1
    liar = Process({0: (much, much, much, much, much)}, {0: 2**31})
    honest = Process({0: (0, 0, 0, 0, 100 * MIB)}, {0: 0})
    hook_path.add("u1_main", a_region(uuids=(b"GPU-a",), limits=(1,), processes=(liar,) * 9))
    hook_path.add("u2_main", a_region(uuids=(b"GPU-a",), limits=(1,), processes=(honest,)))
    for uid in ("u1", "u2"):
        offering.put(a_held_pod(uid, began_seconds=began_seconds))

    async with started("--watchdog=false") as service:

        async def has_used() -> bool:
            return (
                len(
                    [value for value in (await sums(service, "hami_share_used_seconds_total", "pod")).values() if value]
                )
                == 2
            )

        await eventually(has_used, seconds=20)
        used = await sums(service, "hami_share_used_seconds_total", "pod")
        held = await sums(service, "hami_share_held_seconds_total", "pod")

    elapsed = time.time() - began_seconds
    assert 0 < used["pod-u2"] < used["pod-u1"] <= elapsed
    assert abs(held["pod-u1"] - held["pod-u2"]) < 0.01


def a_shown(pod: str, *, sums: DeviceSums | None = None, driver: DriverUse | None = None) -> ShownDevice:
    """Return a device of a container of *pod*."""
    labels = ("n", pod, "main", "0", "GPU-a")
    return ShownDevice(labels, Share("GPU-a", "NVIDIA", 250, 0), sums, 1, None, driver=driver)


def test_drivers_numbers_count_before_the_regions() -> None:
    """The larger of memory and compute is used; two containers add up to one device at most."""
    sums = DeviceSums(total=900 * MIB, sm=90)
    shown = [
        a_shown("region", sums=sums),
        a_shown("driver", sums=sums, driver=DriverUse(1, 100 * MIB, 0.2)),
        a_shown("half", sums=sums, driver=DriverUse(1, 100 * MIB, None)),
        a_shown("none"),
        a_shown("both", sums=sums),
        a_shown("both", sums=sums),
    ]

    found = used_parts(shown, {"GPU-a": Offer("T4", 1000, 100)})

    assert {"region": 0.9, "driver": 0.2, "half": 0.9, "none": 0, "both": 1} == {
        key.pod: part for key, part in found.items()
    }

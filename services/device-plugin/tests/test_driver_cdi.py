"""
The driver's part of the specs through the life of a driver, and whether containers got their edits.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from device_plugin_builders import a_pod
from device_plugin_generator import FakeGenerator

from hami_device_plugin.adapters.generator import GeneratorError
from hami_device_plugin.adapters.kube import NodeKube
from hami_device_plugin.config.loader import load
from hami_device_plugin.config.settings import parse_arguments
from hami_device_plugin.decide.allocate.cdi.edits import SpecError
from hami_device_plugin.decide.allocate.cdi.spec import MARK_MODE
from hami_device_plugin.decide.probe.mode import Mode
from hami_device_plugin.decide.probe.strategy import StrategyError
from hami_device_plugin.metrics import Metrics
from hami_device_plugin.serve.probe import driver_cdi
from hami_device_plugin.serve.probe.driver_cdi import DriverCdi
from hamicommon.config.device_config import Unreadable
from hamicommon.pod.reading import Pod

IDENTITY = Mode("identity", "the runtime has CDI")
UUIDS = ["GPU-01", "GPU-02"]


class View:
    """The Node and its Pods as the tests set them; Warnings are recorded."""

    def __init__(self) -> None:
        self.node: dict[str, Any] = {}
        self.pods: dict[str, Pod] = {}
        self.warnings: list[str] = []

    def report(self, reason: str, message: str, *, is_warning: bool = False) -> None:
        """Record a Warning."""
        assert is_warning
        self.warnings.append(f"{reason}: {message}")


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REFRESH_SECONDS", "RETRY_SECONDS", "CHECK_SECONDS", "STATUS_SECONDS"):
        monkeypatch.setattr(driver_cdi, name, 0.02)


@pytest.fixture
def fake(host: Path) -> FakeGenerator:
    """A driver's root with the stand-in."""
    return FakeGenerator(host)


async def capabilities(mig_uuid: str) -> dict[str, int]:
    """Return the device files of a MIG instance whose UUID ends with its number."""
    number = int(mig_uuid[-1])
    return {f"/dev/nvidia-caps/nvidia-cap{number}": number}


def a_driver_cdi(fake: FakeGenerator, view: View | None = None, *flags: str) -> DriverCdi:
    """Return the driver's part on a host with *fake*."""
    host = fake.host
    arguments: argparse.Namespace = parse_arguments(
        ["--config-file=/c", f"--cdi-root={host / 'cdi'}", *fake.flags, *flags]
    )
    texts: Any = {"/c": "nvidia:\n  resourceCountName: r/gpu\n", "/config/config.json": Unreadable("", is_missing=True)}
    config = load(arguments, {"NODE_NAME": "n1", "HOOK_PATH": str(host / "hook")}, texts)
    return DriverCdi(config, cast(NodeKube, view or View()), Metrics(), capabilities)


async def files(part: DriverCdi, *uuids: str) -> list[str]:
    """Return the host's paths of the driver's files and device files for a container."""
    found = await part.part(uuids)
    assert found is not None
    edits = found.common
    return [str(entry["hostPath"]) for entry in (*edits.mounts.values(), *edits.device_nodes.values())]


@asynccontextmanager
async def running(work: Any) -> AsyncIterator[None]:
    """Run *work* during a block."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(holds: Callable[[], bool]) -> None:
    """Wait until *holds*."""
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 -- what holds is a file or a list, which sets no event
            await asyncio.sleep(0.01)


async def test_container_gets_driver_and_its_own_device(fake: FakeGenerator) -> None:
    """By the host's paths. The hook is installed on the host."""
    part = a_driver_cdi(fake)
    strategy = await part.prepare(IDENTITY, UUIDS)

    assert "cdi-cri: the runtime has CDI, and the driver is described" == str(strategy)
    assert [
        "/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libcuda.so.570.124.06",
        "/run/nvidia/driver/dev/nvidiactl",
        "/run/nvidia/driver/dev/nvidia-uvm",
        "/run/nvidia/driver/dev/nvidia2",
    ] == await files(part, "GPU-02")
    assert b"the hook" == Path(part.hook).read_bytes()
    assert ["nvml GPU-01 GPU-02"] == fake.calls()


async def test_new_driver_is_described_without_a_restart(fake: FakeGenerator) -> None:
    """While it is away, the last description holds."""
    part = a_driver_cdi(fake)
    await part.prepare(IDENTITY, UUIDS)
    async with running(part.keep(lambda: UUIDS, lambda _cause: None)):
        fake.does("fail no driver")
        fake.install("580.95.05")
        await until(lambda: len(fake.calls()) > 3)
        before = await files(part, "GPU-01")
        fake.does("")
        await until(lambda: "580" in str(part._spec))
        after = await files(part, "GPU-01")

    assert ["libcuda.so.570.124.06", "libcuda.so.580.95.05"] == [Path(found[0]).name for found in (before, after)]


async def test_nothing_is_described_again_while_nothing_changes(fake: FakeGenerator) -> None:
    """The generator opens NVML, so it runs only if it must."""
    part = a_driver_cdi(fake)
    await part.prepare(IDENTITY, UUIDS)
    async with running(part.keep(lambda: UUIDS, lambda _cause: None)):
        await asyncio.sleep(0.3)

    assert 1 == len(fake.calls())


async def test_device_that_appears_is_described_when_a_container_needs_it(fake: FakeGenerator) -> None:
    """As a MIG instance that was just made."""
    part = a_driver_cdi(fake)
    await part.prepare(IDENTITY, UUIDS)
    found = await files(part, "GPU-01", "GPU-07")

    assert ["/run/nvidia/driver/dev/nvidia1", "/run/nvidia/driver/dev/nvidia7"] == found[-2:]
    assert "nvml GPU-07" == fake.calls()[-1]


async def test_instance_without_a_device_file_on_the_host_gets_it_by_its_numbers(
    fake: FakeGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The generator leaves it out. Without the numbers the container does not start, because CUDA would fail in it."""
    part = a_driver_cdi(fake)
    await part.prepare(IDENTITY, UUIDS)
    monkeypatch.setattr(driver_cdi, "read_major", lambda: None)
    with pytest.raises(GeneratorError, match=r"MIG instance MIG-01: device file /dev/nvidia-caps/nvidia-cap1 does not"):
        await part.part(["MIG-01"])
    monkeypatch.setattr(driver_cdi, "read_major", lambda: 508)

    found = await part.part(["MIG-01"])

    assert found is not None
    node = {"path": "/dev/nvidia-caps/nvidia-cap1", "type": "c", "major": 508, "minor": 1}
    assert node == found.common.device_nodes["/dev/nvidia-caps/nvidia-cap1"]


async def test_lost_device_leaves_the_others(fake: FakeGenerator) -> None:
    """NVIDIA's generator fails as a whole. Only the lost device's containers do not start."""
    fake.does("lost GPU-01")
    part = a_driver_cdi(fake)
    strategy = await part.prepare(IDENTITY, UUIDS)

    assert strategy.is_native
    assert "/run/nvidia/driver/dev/nvidia2" == (await files(part, "GPU-02"))[-1]
    with pytest.raises(GeneratorError, match="failed: GPU-01"):
        await part.part(["GPU-01"])


@pytest.mark.parametrize(
    ("flags", "does", "reason"),
    [
        (["--cdi-generator="], "", "--cdi-generator is empty"),
        (["--driver-root-ctr-path=/nowhere"], "", "--driver-root-ctr-path /nowhere has no driver: mount the host's "),
        (["--cdi-hook=/nowhere"], "", "/nowhere cannot be installed as "),
        (["--cdi-root=/proc/cdi"], "", "--cdi-root /proc/cdi: a spec cannot be written and read there: "),
        ([], "fail Unknown Error", "cdi generate --mode=nvml: failed: Unknown Error"),
    ],
)
async def test_node_falls_back_for_a_stated_reason(
    fake: FakeGenerator, flags: list[str], does: str, reason: str
) -> None:
    """The older way still works where NVIDIA's runtime does. A configured way is not left."""
    fake.does(does)
    part = a_driver_cdi(fake, None, *flags)
    strategy = await part.prepare(IDENTITY, UUIDS)

    assert ("envvar",) == strategy.names
    assert reason in strategy.reason
    assert f"devices reach containers by {strategy}" == part.status()
    assert await part.part(["GPU-01"]) is None
    with pytest.raises(StrategyError, match="--device-list-strategy=cdi-cri: "):
        await a_driver_cdi(fake, None, "--device-list-strategy=cdi-cri", *flags).prepare(IDENTITY, UUIDS)


async def test_fallback_ends_when_the_reason_is_gone(fake: FakeGenerator) -> None:
    """A new session then starts with native CDI. The Node's Warning says what was wrong."""
    fake.does("fail Unknown Error")
    view, ends = View(), list[str]()
    part = a_driver_cdi(fake, view)
    await part.prepare(IDENTITY, UUIDS)
    async with running(part.keep(lambda: UUIDS, ends.append)):
        await until(lambda: len(fake.calls()) > 4)
        assert not ends
        fake.does("")
        await until(lambda: bool(ends))

    assert "driver" == ends[0]
    [warning] = view.warnings
    assert warning.startswith("NativeCDINotUsed: Devices reach containers by envvar: ")
    assert warning.endswith("failed: Unknown Error")


async def test_feature_that_is_missing_is_no_failure(fake: FakeGenerator) -> None:
    """A cluster switches features on for all Nodes, and not all have them."""
    fake.does("lost all")
    part = a_driver_cdi(fake, None, "--gds-enabled", "--imex-channel-ids=0")
    strategy = await part.prepare(IDENTITY, UUIDS)

    assert strategy.is_native
    assert ["nvml GPU-01 GPU-02", "gds all", "imex 0"] == fake.calls()
    assert "/run/nvidia/driver/dev/nvidia0" in await files(part, "GPU-02")


async def test_incomplete_description_is_an_error(fake: FakeGenerator) -> None:
    """A generator that leaves a device out must not start its container without it."""
    part = a_driver_cdi(fake)
    await part.prepare(IDENTITY, UUIDS)
    fake.program.write_text('#!/bin/sh\necho \'{"cdiVersion": "0.5.0", "devices": []}\'\n')
    with pytest.raises(SpecError, match="device GPU-09 is not in the description"):
        await part.part(["GPU-09"])


def started(pod: Pod, at: datetime) -> Pod:
    """Return *pod* with a container that started *at* a time."""
    return replace(pod, containers=tuple(replace(container, started_at=at) for container in pod.containers))


async def test_container_that_got_its_edits_is_told_from_one_that_did_not(fake: FakeGenerator) -> None:
    """The runtime makes a mark when it applies them. Without CDI a container starts all the same."""
    view, pod, mark = View(), a_pod(), fake.host / "mark"
    mark.touch(0o666)
    part = a_driver_cdi(fake, view)
    await part.prepare(IDENTITY, UUIDS)
    async with running(part.check()):
        view.pods = {pod.uid: started(pod, datetime.now(UTC) - timedelta(seconds=5))}
        part.expect(pod, "main", mark)
        await asyncio.sleep(0.2)
        assert 1 == len(part.status().splitlines()), "an earlier run says nothing"

        mark.chmod(MARK_MODE)
        await until(lambda: part.status().endswith("main: the container runtime applied its CDI edits"))

        mark.chmod(0o666)
        part.expect(pod, "main", mark)
        view.pods = {pod.uid: started(pod, datetime.now(UTC) + timedelta(seconds=1))}
        await until(lambda: "container main: started without its CDI edits" in part.status())

    assert [
        "CDIEditsMissing: Pod ns/p, container main: started without its CDI edits; is CDI enabled in the container "
        "runtime?"
    ] == view.warnings


async def test_pod_that_is_deleted_before_it_starts_says_nothing(fake: FakeGenerator) -> None:
    """Its container is no longer waited for."""
    part = a_driver_cdi(fake)
    await part.prepare(IDENTITY, UUIDS)
    async with running(part.check()):
        part.expect(a_pod(), "main", fake.host / "mark")
        await until(lambda: not part._expected)

    assert 1 == len(part.status().splitlines())

"""
Where the driver can limit memory, it holds a share for programs that do not load the library.

The embedded cluster runs the hook that the device plugin wrote into the CDI spec. A folder stands for cgroup v2.
"""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest
import pytest_asyncio

from hamicommon.model import Object
from harness.cluster import Cluster, Settings
from harness.clusters import embedded
from harness.manifests import a_container, a_pod
from testbed.driver.hardware import CGROUPS, FIRST_DRIVER_WITH_LIMITS, FakeDriver, FakeNode, StandInCgroups
from testbed.driver.native_cdi import write_driver
from testbed.folders import short_folder
from testbed.waiting import eventually

pytestmark = pytest.mark.embedded_only

NODE = replace(FakeNode.of("node-r615", "Tesla T4", 16384, 2), driver=FIRST_DRIVER_WITH_LIMITS)
KUBELET = f"kubelet-{NODE.name}"
DEMAND = {"hami.io/enforcement": "driver"}
SHOW = "grep -c vgpu /etc/ld.so.preload; exec gpu-hold --mib 1000 --then-mib 5000"


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=["misc", "dmem"])
async def limited(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """A cluster whose Node has a driver that limits memory, by its own accounting and by the kernel's dmem."""
    folder, driver = short_folder(), tmp_path_factory.mktemp("driver")
    groups: Path = folder / NODE.name / "hardware" / CGROUPS
    own = (f"--limit-hook={embedded.NATIVE / 'hami-limit-hook'}", f"--cgroup-root={groups}")
    settings = Settings(
        plugin_flags=(*write_driver(driver, embedded.FAKE_DRIVER), *own, "--memory-enforcement=required")
    )
    node = replace(NODE, has_dmem=request.param == "dmem")
    async with embedded.running(folder, (node,), settings) as cluster:
        yield cluster
        assert {} == StandInCgroups(groups).soft_limits()


async def refused(cluster: Cluster, pod: str, container: str = "main") -> list[str]:
    """Return the lines of a container from when an allocation was refused."""
    await cluster.log_line("cuMemAlloc", pod, container)
    return [line for line in (await cluster.log(pod, container)).splitlines() if "MiB" in line]


async def has_restarted(cluster: Cluster, pod: str) -> bool:
    """Return whether the container of a Pod has been restarted."""
    status = (await cluster.pod(pod))["status"]["containerStatuses"][0]
    return bool(status["restartCount"] >= 1)


async def test_driver_holds_a_share_without_the_library(limited: Cluster) -> None:
    """Its Pod demands that. The program sees the share as the size of the device."""
    await limited.create(a_pod("bare", command=("sh", "-c", SHOW), annotations=DEMAND, gpu=1, gpumem=3000))

    lines = await refused(limited, "bare")

    assert ["allocated 1000 MiB of 3000 MiB visible", "cuMemAlloc(5000 MiB): CUDA_ERROR_OUT_OF_MEMORY"] == lines
    environment = limited.environment(await limited.pod("bare"))
    assert "CUDA_DEVICE_MEMORY_LIMIT_0" not in environment


async def test_library_and_driver_hold_a_share_together(limited: Cluster) -> None:
    """By default. A container that restarts is limited again."""
    command = ("sh", "-c", f"{SHOW} --seconds 1")
    await limited.create(a_pod("both", command=command, gpu=1, gpumem=3000))

    lines = await refused(limited, "both")

    assert ["allocated 1000 MiB of 3000 MiB visible", "cuMemAlloc(5000 MiB): CUDA_ERROR_OUT_OF_MEMORY"] == lines
    await eventually(lambda: has_restarted(limited, "both"), "the container restarts")
    assert lines == await refused(limited, "both")


async def test_driver_holds_the_share_of_each_container(limited: Cluster) -> None:
    """Of an init container, a sidecar, and two containers beside each other. No library helps."""
    await limited.delete_all_pods()

    def taking(name: str, memory_mib: int, *more: str) -> Object:
        return a_container(name, ("gpu-hold", "--mib", "500", "--then-mib", "5000", *more), gpu=1, gpumem=memory_mib)

    shares = {"init": 1000, "side": 2000, "one": 3000, "two": 4000}
    side = {**taking("side", shares["side"]), "restartPolicy": "Always"}
    before = [taking("init", shares["init"], "--seconds", "0"), side]
    beside = [taking(name, shares[name]) for name in ("one", "two")]
    await limited.create(a_pod("many", beside, before, annotations=DEMAND))

    for name, memory_mib in shares.items():
        told = [f"allocated 500 MiB of {memory_mib} MiB visible", "cuMemAlloc(5000 MiB): CUDA_ERROR_OUT_OF_MEMORY"]
        assert told == await refused(limited, "many", name)


async def test_container_is_limited_again_after_the_kubelet_was_restarted(limited: Cluster) -> None:
    """The new kubelet starts it as the old one did."""
    await limited.delete_all_pods()
    command = ("gpu-hold", "--mib", "1000", "--then-mib", "5000", "--seconds", "3")
    await limited.create(a_pod("again", command=command, annotations=DEMAND, gpu=1, gpumem=3000))
    lines = await refused(limited, "again")
    await limited.kill(KUBELET)
    await limited.restart(KUBELET)

    await eventually(lambda: has_restarted(limited, "again"), "the container restarts", 60)
    assert ["allocated 1000 MiB of 3000 MiB visible", "cuMemAlloc(5000 MiB): CUDA_ERROR_OUT_OF_MEMORY"] == lines
    assert lines == await refused(limited, "again")


async def test_whole_device_is_not_limited(limited: Cluster) -> None:
    """It has no library either."""
    await limited.delete_all_pods()
    await limited.create(a_pod("whole", command=("gpu-hold", "--mib", "1000", "--then-mib", "14000"), gpu=1))

    assert "allocated 1000 MiB of 16384 MiB visible" == await limited.log_line("visible", "whole")
    await limited.log_line("allocated 14000 MiB more", "whole")
    assert "CUDA_DEVICE_MEMORY_LIMIT_0" not in limited.environment(await limited.pod("whole"))


async def test_container_does_not_start_without_its_limit(limited: Cluster) -> None:
    """The Pod has the sentence of the hook, and starts once the driver takes the limit."""
    await limited.delete_all_pods()
    driver = FakeDriver(limited.driver_folder(NODE.name))
    driver.fail(pynvml.NVML_ERROR_NO_PERMISSION, call="nvmlDeviceSetMemoryLimits_v1")
    await limited.create(a_pod("late", command=("gpu-hold", "--mib", "1000"), gpu=1, gpumem=3000))

    async def message() -> str:
        [status] = (await limited.pod("late"))["status"].get("containerStatuses") or [{}]
        return str(status.get("state", {}).get("waiting", {}).get("message", ""))

    async def is_refused() -> bool:
        return "hami-limit-hook: device " in await message()

    await eventually(is_refused, "the Pod has the sentence of the hook")
    driver.recover()
    assert "allocated 1000 MiB of 3000 MiB visible" == await limited.log_line("allocated", "late")

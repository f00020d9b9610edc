"""
Containers get devices and driver by CDI alone, from a container runtime that knows nothing of NVIDIA.

The generator here is a stand-in that describes the fake driver. Real clusters run NVIDIA's own: test_node_kinds.py.
"""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from harness.cluster import Cluster, Settings
from harness.clusters import embedded
from harness.manifests import a_container, a_pod
from testbed.folders import short_folder
from testbed.hardware import FakeNode
from testbed.waiting import eventually

pytestmark = pytest.mark.embedded_only

NODE = FakeNode.of("node-a", "Tesla T4", 16384, 2)
DRIVER = embedded.NATIVE / "fake_driver"
GENERATOR = """#!{python}
import json, os, pathlib, sys

given = dict(argument.removeprefix("--").split("=", 1) for argument in sys.argv[3:] if "=" in argument)
wanted = [argument.split("=", 1)[1] for argument in sys.argv if argument.startswith("--device-id=")]
hardware = pathlib.Path(os.environ["FAKE_DRIVER_DIR"])
uuids = [row.split(",")[0] for row in (hardware / "devices.csv").read_text().splitlines()[1:]]


def nodes(*names):
    return [{{"path": f"/dev/{{name}}", "hostPath": given["dev-root"] + f"/dev/{{name}}"}} for name in names]


print(json.dumps({{
    "cdiVersion": "0.5.0",
    "devices": [
        {{"name": uuid, "containerEdits": {{"deviceNodes": nodes(f"nvidia{{uuids.index(uuid)}}")}}}} for uuid in wanted
    ],
    "containerEdits": {{
        "env": [
            f"FAKE_DRIVER_DIR={{hardware}}",
            "FAKE_DRIVER_DEV=/dev",
            "LD_LIBRARY_PATH=" + os.environ["LD_LIBRARY_PATH"],
        ],
        "deviceNodes": nodes("nvidiactl", "nvidia-uvm"),
    }},
}}))
"""


def write_driver(folder: Path) -> tuple[str, ...]:
    """
    Install a driver and its generator below *folder*, and return the flags of a plugin that uses them.

    Containers here have all rights of root, and yet only the devices of their device files.
    """
    libraries, generator, hook = folder / "usr/lib64", folder / "nvidia-ctk", folder / "nvidia-cdi-hook"
    libraries.mkdir(parents=True)
    (libraries / "libnvidia-ml.so.1").symlink_to(DRIVER / "libnvidia-ml.so.1")
    (folder / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (folder / "dev" / name).touch()
    generator.write_text(GENERATOR.format(python=sys.executable))
    generator.chmod(0o755)
    hook.touch()
    roots = (f"--nvidia-driver-root={folder}", f"--driver-root-ctr-path={folder}")
    return (f"--cdi-generator={generator}", f"--cdi-hook={hook}", *roots)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def native(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """A cluster whose Node has a driver and a generator."""
    settings = Settings(plugin_flags=write_driver(tmp_path_factory.mktemp("driver")))
    async with embedded.running(short_folder(), (NODE,), settings) as cluster:
        yield cluster


async def test_share_works_without_a_runtime_of_nvidias(native: Cluster) -> None:
    """CUDA sees the share, NVIDIA's runtime is told to add nothing, and the plugin sees that its edits were applied."""
    await native.create(a_pod("p", command=("gpu-hold", "--mib", "1000"), gpu=1, gpumem=3000))

    line = await native.log_line("allocated", "p")
    pod = await native.pod_in_phase("p", "Running")

    async def is_applied() -> bool:
        return 'hami_device_plugin_cdi_edits_total{result="applied"} 1.0' in await native.metrics("plugin-node-a")

    assert "allocated 1000 MiB of 3000 MiB visible" == line
    assert "void" == native.environment(pod)["NVIDIA_VISIBLE_DEVICES"]
    await eventually(is_applied, "the plugin sees that the edits were applied")


async def test_container_sees_the_devices_that_it_was_granted_and_no_others(native: Cluster) -> None:
    """By their device files. A container without a share has none."""
    show = ("sh", "-c", "cd /dev; echo found: $(ls -d nvidia?); sleep infinity")
    containers = [a_container("one", command=show, gpu=1, gpumem=1000), a_container("none", command=show)]
    await native.create(a_pod("q", containers=containers))

    one = await native.log_line("found:", "q", "one")
    none = await native.log_line("found:", "q", "none")

    assert one in {"found: nvidia0", "found: nvidia1"}
    assert "found:" == none.strip()

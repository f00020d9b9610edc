"""
NVIDIA's generator as a program: what it is asked, and how it may fail.
"""

from pathlib import Path

import pytest
from device_plugin_generator import FakeGenerator, real_generator

from hami_device_plugin.adapters.generator import Generator, GeneratorError, roots
from hami_device_plugin.decide.allocate.cdi.driver import Root


@pytest.fixture
def fake(host: Path) -> FakeGenerator:
    """A driver's root with the stand-in."""
    return FakeGenerator(host)


def a_generator(fake: FakeGenerator, deadline_seconds: float = 20.0) -> Generator:
    """Return the adapter over *fake*."""
    root = Root(str(fake.driver_root), "/")
    return Generator(str(fake.program), "/usr/local/vgpu/nvidia-cdi-hook.1", root, root, deadline_seconds)


async def test_devices_are_described_with_the_hosts_paths(fake: FakeGenerator) -> None:
    """Those that were asked for, and what all of them need."""
    spec = await a_generator(fake).describe(["GPU-a1", "GPU-a2"])

    assert {"GPU-a1", "GPU-a2"} == spec.devices.keys()
    assert "/dev/nvidia162" == spec.devices["GPU-a2"].device_nodes["/dev/nvidia162"]["hostPath"]
    assert ["/usr/lib/x86_64-linux-gnu/libcuda.so.570.124.06"] == [
        mount["hostPath"] for mount in spec.common.mounts.values()
    ]
    assert ["/usr/local/vgpu/nvidia-cdi-hook.1"] == [hook["path"] for hook in spec.common.hooks]


async def test_drafts_of_the_generator_need_no_writable_root(
    fake: FakeGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes what it prints into a file first, and the root of the plugin's container is read-only."""
    monkeypatch.setenv("TMPDIR", "/proc")

    assert {"GPU-a1"} == (await a_generator(fake).describe(["GPU-a1"])).devices.keys()


@pytest.mark.parametrize(
    ("does", "problem"),
    [
        ("fail GPU is lost", "nvidia-ctk cdi generate --mode=nvml: failed: GPU is lost$"),
        ("hang", "nvidia-ctk cdi generate --mode=nvml: did not end in 1 s$"),
        ("flood", "nvidia-ctk cdi generate --mode=nvml: printed more than 4194304 bytes$"),
    ],
)
async def test_failure_is_one_sentence(fake: FakeGenerator, does: str, problem: str) -> None:
    """The program, its task and the reason; no process is left."""
    fake.does(does)
    with pytest.raises(GeneratorError, match=problem):
        await a_generator(fake, 20.0 if does != "hang" else 1.0).describe(["GPU-a1"])


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be run: No such file or directory"),
        ("#!/bin/sh\nexit 3\n", "ended with 3"),
        ("#!/bin/sh\necho kind: nvidia.com/gpu\n", "not JSON"),
    ],
)
async def test_program_that_is_no_generator_is_named(host: Path, content: str | None, problem: str) -> None:
    """With what it did instead."""
    program = host / "program"
    if content is not None:
        program.write_text(content)
        program.chmod(0o755)
    with pytest.raises(GeneratorError, match=f"{program}.*{problem}"):
        await Generator(str(program), "/hook", Root("/", "/"), Root("/", "/")).describe(["GPU-a1"])


@pytest.mark.parametrize(
    ("dev_root", "has_dev", "expected"),
    [
        pytest.param("/run/nvidia/driver", True, ("driver", "/run/nvidia/driver"), id="the driver's"),
        pytest.param("/run/nvidia/driver", False, ("/", "/"), id="a driver's root without device files"),
        pytest.param("/run/nvidia/driver/chroot", True, ("/", "/run/nvidia/driver/chroot"), id="below it, not mounted"),
        pytest.param("/", True, ("/", "/"), id="the host's"),
    ],
)
def test_device_files_are_looked_for_where_they_are(
    host: Path, dev_root: str, has_dev: bool, expected: tuple[str, str]
) -> None:
    """Below the driver's root, or else in the plugin's own `/dev`."""
    if has_dev:
        (host / "driver/dev").mkdir(parents=True)
    driver, device = roots("/run/nvidia/driver", str(host / "driver"), dev_root)

    here = str(host / "driver") if expected[0] == "driver" else expected[0]
    assert (Root(str(host / "driver"), "/run/nvidia/driver"), Root(here, expected[1])) == (driver, device)


async def test_nvidias_own_generator_describes_a_fake_driver(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the stand-in prints is what the program that the image has prints."""
    fake = real_generator(host)
    fake.make_device_files("nvidia0", "nvidiactl", "nvidia-uvm")
    (host / "hardware").mkdir()
    (host / "hardware/devices.csv").write_text(
        "uuid,name,memory_mib,numa_node,pci_bus_id\nGPU-aaaaaaaa-0000-4000-8000-000000000000,A,16384,0,00000000:01:00.0\n"
    )
    monkeypatch.setenv("FAKE_DRIVER_DIR", str(host / "hardware"))
    spec = await a_generator(fake).describe(["GPU-aaaaaaaa-0000-4000-8000-000000000000"])
    edits = spec.selected(spec.devices)

    assert {"/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"} == edits.device_nodes.keys()
    assert "/dev/nvidia0" == edits.device_nodes["/dev/nvidia0"]["hostPath"]
    assert "/usr/lib/x86_64-linux-gnu/libcuda.so.570.124.06" in edits.mounts
    assert {"/usr/local/vgpu/nvidia-cdi-hook.1"} == {hook["path"] for hook in edits.hooks}

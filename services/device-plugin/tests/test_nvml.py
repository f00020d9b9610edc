"""
NVML in one process: opened, called, closed, and loaded from where the driver is.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from device_plugin_process import A100, DEVICES, FAKE_DRIVER, T4, needs_fake_driver

pytestmark = needs_fake_driver

PRELUDE = """
import asyncio, pynvml, sys
from pathlib import Path
from hami_device_plugin.adapters.nvml.devices import discover
from hamicommon.runtime.host.nvml import Nvml, NvmlError

def mapped():
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sorted({line.split()[-1] for line in lines if "nvidia-ml" in line})

async def main():
    nvml = Nvml()
"""


def run(folder: Path, body: str, library_path: str = str(FAKE_DRIVER)) -> list[str]:
    """Return the lines that *body* prints in a process whose driver has the two devices."""
    (folder / "devices.csv").write_text(DEVICES)
    program = PRELUDE + "".join(f"    {line}\n" for line in body.strip().splitlines()) + "asyncio.run(main())\n"
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"LD_LIBRARY_PATH": library_path, "FAKE_DRIVER_DIR": str(folder)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return answer.stdout.splitlines()


def test_closed_nvml_is_not_in_the_process_any_more(tmp_path: Path) -> None:
    """A library that stays mapped keeps its files open, and the next driver's library is never loaded."""
    lines = run(
        tmp_path,
        """
for _ in range(2):
    await nvml.open("/nowhere")
    print(nvml.is_open, *(device.uuid for device in (await discover(nvml)).found), len(mapped()))
    await nvml.close()
    print(nvml.is_open, len(mapped()))
await nvml.close()
""",
    )

    assert [f"True {A100} {T4} 1", "False 0"] * 2 == lines


def test_library_below_the_driver_root_wins(tmp_path: Path) -> None:
    """The container's own library is of another driver; each opening looks again."""
    directory = tmp_path / "root/usr/lib64"
    directory.mkdir(parents=True)
    for version in ("1", "2"):
        (directory / f"libnvidia-ml.so.{version}0").write_bytes((FAKE_DRIVER / "libnvidia-ml.so.1").read_bytes())
    link = directory / "libnvidia-ml.so.1"
    lines = run(
        tmp_path,
        f"""
for version in ("10", "20"):
    Path("{link}").unlink(missing_ok=True)
    Path("{link}").symlink_to(f"libnvidia-ml.so.{{version}}")
    await nvml.open("{tmp_path}/root")
    print(*mapped())
""",
    )

    assert [f"{directory}/libnvidia-ml.so.10", f"{directory}/libnvidia-ml.so.20"] == lines


@pytest.mark.parametrize("body", ["await nvml.open('/nowhere')", "await nvml.call(pynvml.nvmlDeviceGetCount)"])
def test_nvml_that_is_missing_or_closed_is_an_error(body: str, tmp_path: Path) -> None:
    """The message names the library or the call, and the code is NVML's."""
    lines = run(tmp_path, f"try:\n    {body}\nexcept NvmlError as error:\n    print(error.code, error)", str(tmp_path))

    assert lines[0] in (
        "None libnvidia-ml.so.1 cannot be used; searched below /nowhere and in the linker's directories: "
        "libnvidia-ml.so.1: cannot open shared object file: No such file or directory",
        "1 nvmlDeviceGetCount: Uninitialized",
        "1 nvmlDeviceGetCount: NVML Error with code 1",
    )


def test_events_are_subscribed_to_again_after_nvml_was_opened_again(tmp_path: Path) -> None:
    """A handle of the closed library would be memory that is freed."""
    lines = run(
        tmp_path,
        f"""
from hami_device_plugin.adapters.nvml.health import HealthReader
reader = HealthReader(nvml, is_complete=True)
for _ in range(2):
    await nvml.open("/nowhere")
    await reader.read("{A100}")
    with Path("{tmp_path}/xid").open("a") as file:
        file.write("{A100} 48\\n")
    print(*(await reader.read("{A100}")).xids)
""",
    )

    assert ["48", "48"] == lines

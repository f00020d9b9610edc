"""
The fake driver of the native build, with two devices.
"""

from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[3] / "build/native"
DEVICE_A, DEVICE_B = "GPU-aaaaaaaa-1111-2222-3333-444444444444", "GPU-bbbbbbbb-1111-2222-3333-444444444444"


def built(name: str) -> Path:
    """Return the path of *name*, which the native build makes."""
    path = NATIVE / name
    if not path.exists():
        pytest.fail(f"{path} is missing: run `python tools/build_native.py` first")
    return path


def hardware(folder: Path) -> dict[str, str]:
    """Describe two devices in *folder*, and return the environment in which a process finds them."""
    libraries = built("fake_driver/libnvidia-ml.so.1").parent
    folder.mkdir()
    (folder / "devices.csv").write_text(
        "uuid,name,memory_mib,numa_node,pci_bus_id\n"
        f"{DEVICE_A},NVIDIA A100-SXM4-40GB,40960,0,00000000:07:00.0\n"
        f"{DEVICE_B},NVIDIA T4,15360,1,00000000:0F:00.0\n"
    )
    return {"LD_LIBRARY_PATH": str(libraries), "FAKE_DRIVER_DIR": str(folder)}

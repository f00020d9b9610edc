"""
A driver root with a stand-in for NVIDIA's generator of CDI specs, which describes the fake driver.
"""

import sys
from pathlib import Path

from testbed.driver.mps import install_mps

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


def write_driver(folder: Path, fake_driver: Path) -> tuple[str, ...]:
    """
    Install the driver from *fake_driver*, and its generator, below *folder*, and return the flags of a plugin for them.

    Containers here have all rights of root, and yet only the devices of their device files.
    """
    libraries, generator, hook = folder / "usr/lib64", folder / "nvidia-ctk", folder / "nvidia-cdi-hook"
    libraries.mkdir(parents=True)
    (libraries / "libnvidia-ml.so.1").symlink_to(fake_driver / "libnvidia-ml.so.1")
    install_mps(folder, fake_driver)
    (folder / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (folder / "dev" / name).touch()
    generator.write_text(GENERATOR.format(python=sys.executable))
    generator.chmod(0o755)
    hook.touch()
    roots = (f"--nvidia-driver-root={folder}", f"--driver-root-ctr-path={folder}")
    return (f"--cdi-generator={generator}", f"--cdi-hook={hook}", *roots)

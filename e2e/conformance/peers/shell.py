"""
The image of the tests' containers: a shell and a few commands of this machine, with their libraries.

The embedded cluster needs no image, because its containers see the files of this machine.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

from conformance.peers.objects import IMAGE

COMMANDS = ("sh", "sleep", "cat", "touch", "env", "true", "sort", "ls", "mkdir", "rm")


def shell_image(folder: Path) -> Path:
    """Pack the image into *folder*, and return the archive."""
    from controlplane.images.oci import packed

    files: dict[str, Path] = {}
    for command in COMMANDS:
        program = shutil.which(command)
        assert program is not None, f"{command} is not installed"
        files[f"/bin/{command}"] = Path(os.path.realpath(program))
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        files |= {path: Path(os.path.realpath(path)) for path in re.findall(r"(/\S+) \(0x", listed)}

    return packed(folder / "shell.tar", IMAGE, files, ["/bin/sleep", "1000000"])

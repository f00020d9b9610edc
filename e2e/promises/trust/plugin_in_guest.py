"""
Make what the device plugin makes on a Node, and what it gives a container: `plugin_in_guest.py VGPU DIRECTORY`.

`test_selinux` runs it in its guest. It also makes VGPU/other, which no container may use.
"""

import sys
from pathlib import Path

from hami_device_plugin.adapters import library, regions
from hami_device_plugin.adapters.files import label_for_containers


def main(vgpu: Path, directory: Path) -> None:
    """Make them in the Node's folder *vgpu* and in *directory*. Raises: RuntimeError if a file was not labelled."""
    regions.premake_directory(directory)
    regions.prepare_region(directory / "r.cache")
    regions.write_limits(directory, b"limits")
    library.write_preload(vgpu)
    refused = label_for_containers(vgpu / library.PRELOAD_NAME)
    if refused is not None:
        raise RuntimeError(refused)
    (vgpu / "other").write_text("other")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

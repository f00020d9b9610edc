"""
The region's layout in C equals the vector file that Python uses.
"""

import json
import subprocess
from pathlib import Path


def test_c_layout_equals_the_vector(build: Path, root: Path) -> None:
    """
    Every size and offset of version 1.2 is as in the vector file, and the file is one byte longer than the region.
    """
    printed = json.loads(subprocess.run([build / "print_layout"], check=True, capture_output=True, text=True).stdout)
    layouts = json.loads((root / "libs/hamicommon/vectors/region/layouts.json").read_text())
    expected = next(layout for layout in layouts if layout["layout"] == "v1.2")

    assert expected["region_size"] + 1 == printed.pop("file_size")
    assert {key: expected[key] for key in printed} == printed

"""
The region's layout in C equals the vector file that Python uses.
"""

import json
import subprocess
from pathlib import Path

from hamicommon.wire.region import records


def test_c_layout_equals_the_vector(build: Path, root: Path) -> None:
    """
    Every size and offset of version 1.2 is as in the vector file, and the file is one byte longer than the region.
    """
    printed = json.loads(subprocess.run([build / "print_layout"], check=True, capture_output=True, text=True).stdout)
    layouts = json.loads((root / "libs/hamicommon/vectors/region/layouts.json").read_text())
    expected = next(layout for layout in layouts if layout["layout"] == "v1.2")

    printed.pop("records")
    assert expected["region_size"] + 1 == printed.pop("file_size")
    assert {key: expected[key] for key in printed} == printed


def test_c_records_are_where_python_reads_them(build: Path) -> None:
    """
    The words that HAMi leaves unused, and the mark that says that they are kept.
    """
    printed = json.loads(subprocess.run([build / "print_layout"], check=True, capture_output=True, text=True).stdout)

    assert printed["records"] == {name: getattr(records, name) for name in printed["records"]}

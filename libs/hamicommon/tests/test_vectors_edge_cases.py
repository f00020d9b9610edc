"""
Our vectors: edge cases of every format, in the JSON of the command line.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from hamicommon.cli import shapes
from hamicommon.cli.formats import FORMATS
from hamicommon.model import Device, MigAllocation, MigPlacement
from hamicommon.wire.errors import DecodeError

VECTORS = Path(__file__).parents[1] / "vectors"
TEXT_FORMATS = {each.name: each for each in FORMATS if each.name != "region"}
ZERO = {
    "node-devices": {
        **asdict(Device("", 0, 0, 0, "")),
        "mig_profiles": [],
        "healthy": False,
    },
    "mig-allocations": asdict(MigAllocation(0, 0, "", "", MigPlacement(0, 0))),
}
ZERO_PROFILE = {"name": "", "memory_mib": 0, "core_percent": 0, "slice_count": 0, "placements": []}


def cases() -> list[Any]:
    """Return each case with its format, named as in the file."""
    return [
        pytest.param(name, case, id=f"{name}:{case['case']}")
        for name in TEXT_FORMATS
        for case in json.loads((VECTORS / name / "more.json").read_text("utf-8"))
    ]


def completed(name: str, value: Any) -> Any:
    """Return *value* with the keys that the file leaves out."""
    if name not in ZERO:
        return value
    entries = [{**ZERO[name], **entry} for entry in value]
    for entry in entries:
        if "mig_profiles" in entry:
            entry["mig_profiles"] = [{**ZERO_PROFILE, **profile} for profile in entry["mig_profiles"]]
    return entries


@pytest.mark.parametrize(("name", "case"), cases())
def test_text_is_read_as_the_vector_says(name: str, case: dict[str, Any]) -> None:
    """A text yields its value, or an error that names the place."""
    if "error" in case:
        with pytest.raises(DecodeError) as refused:
            TEXT_FORMATS[name].shape(case["text"], "")
        assert case["error"] == refused.value.place
    else:
        shape = TEXT_FORMATS[name].shape(case["text"], "")
        printed = "".join(shapes.one_line(shape if isinstance(shape, dict) else list(shape)))
        assert completed(name, case["value"]) == json.loads(printed)

"""
The device plugin reads a Pod as every service does: the vectors of hamicommon, run on its own reader.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from device_plugin_builders import VENDOR

from hami_device_plugin.decide.allocate.pods import granted_shares
from hami_device_plugin.decide.mig.claims import reservations
from hamicommon.pod.reading import read_pod

CASES = json.loads((Path(__file__).parents[3] / "libs/hamicommon/vectors/pod/grants.json").read_text("utf-8"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_container_gets_what_every_service_reads(case: dict[str, Any]) -> None:
    """The share that a start serves is the one that the scheduler counts and the monitor shows."""
    pod = read_pod(case["pod"], (VENDOR,))
    found = granted_shares(pod, "n1", VENDOR)

    assert case["shares"] == {
        name: [[share.uuid, share.memory_mib, share.core_percent] for share in held]
        for name, held in found.items()
        if held
    }
    for name in case.get("instances", ()):
        [instance] = reservations(pod, name, found[name], VENDOR.allocated_key)
        assert found[name][0].uuid == instance.gpu_uuid

"""
The scheduler reads a Pod as every service does: the vectors of hamicommon, run on its own reader.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from hami_scheduler.values.grant import read_grant

from ..support.builders import vendors

CASES = json.loads((Path(__file__).parents[4] / "libs/hamicommon/vectors/pod/grants.json").read_text("utf-8"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_grant_is_what_every_service_reads(case: dict[str, Any]) -> None:
    """What the ledger counts of each device is exactly what the Pod holds."""
    pod = case["pod"]
    grant = read_grant(pod, vendors())
    spec = pod["spec"]
    names = [one["name"] for one in (*spec.get("initContainers", ()), *spec["containers"])]
    shares = grant.shares.get("NVIDIA", ()) if grant else ()
    amounts = grant.amounts if grant else {}

    assert case["held"] == {uuid: [one.replicas, one.memory_mib, one.core_percent] for uuid, one in amounts.items()}
    if grant and shares:
        assert case["shares"] == {
            name: [[share.uuid, share.memory_mib, share.core_percent] for share in held]
            for name, held in zip(names, shares, strict=True)
            if held
        }
        assert case.get("instances", []) == [names[one.container_index] for one in grant.mig]

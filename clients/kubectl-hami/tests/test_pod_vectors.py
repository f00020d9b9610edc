"""
The client reads a Pod as every service does: the vectors of hamicommon, run on its own reader.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from kubectl_hami.answer.shares import allocations

CASES = json.loads((Path(__file__).parents[3] / "libs/hamicommon/vectors/pod/grants.json").read_text("utf-8"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_share_is_what_every_service_reads(case: dict[str, Any]) -> None:
    """What is shown as granted is what the scheduler counts."""
    problems: list[str] = []
    found = list(allocations([case["pod"]], problems))
    amounts = {uuid: one for pod in found for uuid, one in pod.amounts.items()}
    shown = {(share.container, uuid) for pod in found for uuid, _, share in pod.shares}

    assert case["held"] == {uuid: [one.replicas, one.memory_mib, one.core_percent] for uuid, one in amounts.items()}
    assert [] == problems
    if case["held"]:
        expected = {(name, uuid.partition("[")[0]) for name, of_one in case["shares"].items() for uuid, *_ in of_one}
        assert expected == shown

"""
The webhook reads a Pod as every service does: the vectors of hamicommon, run on its own reader.
"""

import json
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from hami_webhook.decide.admission import Policy
from hami_webhook.decide.quota import granted
from hamicommon.pod.amounts import Amounts

CASES = json.loads((Path(__file__).parents[3] / "libs/hamicommon/vectors/pod/grants.json").read_text("utf-8"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_quota_counts_what_every_service_reads(policy: Policy, case: dict[str, Any]) -> None:
    """A namespace pays for each device what the Pod holds of it."""
    amounts = (Amounts(0, memory_mib, core_percent) for _, memory_mib, core_percent in case["held"].values())
    found = granted(case["pod"], policy.vendors).get("NVIDIA", Amounts())

    assert reduce(Amounts.plus, amounts, Amounts()) == found

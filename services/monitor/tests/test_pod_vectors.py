"""
The monitor reads a Pod as every service does: the vectors of hamicommon, run on its own reader.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from hami_monitor.decide.accounts.price import Offer, parts
from hami_monitor.decide.pods import monitored_pod
from hami_monitor.decide.share_time import LASTING
from hami_monitor.decide.watchdog.owners import pod_owner

VECTORS = Path(__file__).parents[3] / "libs/hamicommon/vectors/pod"
CASES = json.loads((VECTORS / "grants.json").read_text("utf-8"))
VARIABLES = json.loads((VECTORS / "variables.json").read_text("utf-8"))
OFFERED_MIB = 2**20
OFFERS = {uuid: Offer("", OFFERED_MIB, 10**9) for uuid in ("GPU-a", "GPU-b")}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_container_is_shown_with_what_every_service_reads(case: dict[str, Any]) -> None:
    """What is billed for a Pod is what it holds; a Pod that has ended has no shares left."""
    pod = monitored_pod(case["pod"], "n1")
    assert pod is not None

    if case["held"]:
        assert case["shares"] == {
            name: [[share.uuid, share.memory_mib, share.core_percent] for share in held]
            for name, held in pod.shares.items()
        }
        assert pod.share_time is not None
        is_prepared = pod.share_time.prepared_seconds != LASTING
        billed = parts(pod.share_time.containers, OFFERS, is_prepared=is_prepared)
        memory = {uuid: part * OFFERED_MIB for uuid, part in billed.items()}
        assert {uuid: memory_mib for uuid, (_, memory_mib, _) in case["held"].items()} == pytest.approx(memory)
    assert case.get("instances", []) == [name for name, _ in pod.mig_allocations]


@pytest.mark.parametrize("case", VARIABLES, ids=lambda case: case["case"])
def test_variables_are_what_every_service_reads(case: dict[str, Any]) -> None:
    """The priority steers the feedback; a container without the library is judged by the watchdog without one."""
    item = {
        "metadata": {"annotations": {"hami.io/vgpu-node": "n1"}},
        "spec": {"containers": [{"name": "main", "env": case["env"]}]},
    }
    pod = monitored_pod(item, "n1")
    assert pod is not None

    assert ({} if case["priority"] is None else {"main": case["priority"]}) == pod.priorities
    assert case["is_control_disabled"] == ("main" in pod_owner(item).without_library)

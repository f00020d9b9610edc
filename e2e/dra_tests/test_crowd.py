"""
Two thousand Pods compete for devices on Nodes of both kinds, while our scheduler is killed and learns late.
"""

import random
import shutil
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from controlplane.programs.build import DEFAULT_KUBERNETES
from dra import crowd
from dra.extender import Answers
from dra.stage import Stage, staged, warm_up
from harness.history.findings import Rule
from testbed.folders import short_folder
from testbed.waiting import eventually

pytestmark = [pytest.mark.real_only, pytest.mark.timeout(900)]

PODS = 2000
GONE = 600
"""How many of the Pods that run end, so that others get their devices."""


@pytest_asyncio.fixture(loop_scope="session")
async def both_kinds(pytestconfig: pytest.Config) -> AsyncIterator[Stage]:
    """Yield a control plane with many Nodes of both kinds, whose Pods go through our webhook."""
    folder = short_folder()
    values = {"dra.enabled": True, "dra.extendedResource": True}
    try:
        minor = pytestconfig.getoption("--kubernetes") or DEFAULT_KUBERNETES
        async with staged(folder, minor, values) as found:
            await crowd.add_nodes(found.api)
            await warm_up(found, crowd.A_PLUGIN_NODE)
            await crowd.add_templates(found)
            async with found.extender.answering(Answers.OURS):
                yield found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def test_no_device_is_promised_twice_or_by_two_at_any_version(both_kinds: Stage) -> None:
    """
    Every version of Pods, claims, slices and Nodes is judged: sums, grants, and that each device is on one side.

    Nobody waits in the end who fits, and our scheduler counts what the API server's objects hold.
    """
    draw = random.Random(37)
    async with crowd.recorded(both_kinds) as recorder:
        async with crowd.under_fire(both_kinds, draw) as faults:
            await crowd.create(both_kinds, crowd.made_pods(PODS, draw))
            pods = await crowd.settled(both_kinds, recorder)
            running = [pod for pod in pods if "nodeName" in pod["spec"]]
            first = crowd.places(pods)
            await crowd.delete(both_kinds, draw.sample(running, GONE))
            pods = await crowd.settled(both_kinds, recorder)
        await recorder.settle()

        # How long a Pod waits is the machine's speed and the outages; who is forgotten is owed in the end.
        assert [] == [finding for finding in recorder.findings if finding.rule is not Rule.LOST]
        assert 0 == recorder.judge.gaps
        held = {place: amount.memory_mib for place, amount in recorder.judge.held().items()}
        await eventually(lambda: _agrees(both_kinds, held), "our scheduler counts what the objects hold")
    assert crowd.KILLS == faults.kills
    assert both_kinds.late.late_pieces > 0
    assert {"plugin", "tokens", "claims"} == set(first) == set(crowd.places(pods))
    assert sum(crowd.places(pods).values()) > sum(first.values()) - GONE
    print(f"first {first}, in the end {crowd.places(pods)}, {both_kinds.late.late_pieces} late pieces of watches")


async def _agrees(stage: Stage, held: dict[tuple[str, str], int]) -> bool:
    return await crowd.counted_by_scheduler(stage) == held

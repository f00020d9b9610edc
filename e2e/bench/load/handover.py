"""
Measure how soon a pending Pod gets the device of another, and whether the scheduler has to wake it.

kube-scheduler calls the extender again within milliseconds after the end of a Pod. This may be before the extender's
watch reports the end. Then the extender rejects the Pod again, and kube-scheduler does not retry until the scheduler
wakes the Pod. Owns the rounds that count this. Neighbours: `rig` runs the parts, `measurement` has the percentiles.
"""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp

from bench.load.rig import METRICS_PORT, READY_SECONDS, Rig
from bench.load.simulation import DEVICE_MIB, PODS, a_node, a_pod
from bench.record.audit import Request
from bench.record.measurement import BINDING, Case, percentiles
from hamicommon.model import Object
from harness.cluster import SCHEDULER_NAME
from testbed.waiting import eventually

NODE = "full"
QUIET_SECONDS = 0.3
"""The write of a rejection into the status makes kube-scheduler retry the Pod once."""
_REFUSED = re.compile(r'hami_scheduler_filter_seconds_count\{outcome="refused"\} ([0-9.e+]+)')
_WHOLE = {"gpu": 1, "gpumem": DEVICE_MIB}


@dataclass(frozen=True, slots=True)
class Handover:
    """The figures of all rounds."""

    rounds: int
    overlooked: int
    """Rounds in which kube-scheduler called too early after the other Pod's end."""
    woken: int
    """Rounds in which the scheduler woke the Pod."""
    ms: Mapping[str, float]
    """From the request that ended the other Pod to the Binding of the pending one, by percentile."""


async def measure_handover(rig: Rig, case: Case, rounds: int) -> Handover:
    """Let Pods use the only device of a Node one after the other, each once the one before it is deleted."""
    await rig.add_nodes([a_node(NODE, 1)])
    overlooked, woken = 0, 0
    seconds = []
    async with rig.extender(case):
        with rig.kube_scheduler(case):
            await rig.create([_pod(0)])
            await rig.until_bound(_name(0))
            for number in range(1, rounds + 1):
                await rig.create([_pod(number)])
                refused = await _waiting(rig, _name(number))
                rig.audit.mark()
                await rig.client.delete(f"{PODS}/{_name(number - 1)}", grace_seconds=0)
                await rig.until_bound(_name(number))
                overlooked += await _refusals() > refused
                ended, bound = await _written(rig, ("delete pods", _name(number - 1)), (BINDING, _name(number)))
                woken += any((found.verb, found.name) == ("patch pods", _name(number)) for found in rig.audit.read())
                seconds.append(bound.answered - ended.received)
    await rig.delete_pods()
    return Handover(rounds, overlooked, woken, percentiles(seconds, 1000))


async def _waiting(rig: Rig, name: str) -> float:
    """Wait until the Pod *name* is rejected and kube-scheduler is idle, and return the number of rejections."""

    async def is_refused() -> bool:
        return "conditions" in (await rig.client.get(f"{PODS}/{name}"))["status"]

    await eventually(is_refused, f"Pod {name} is rejected", READY_SECONDS)
    await asyncio.sleep(QUIET_SECONDS)
    return await _refusals()


async def _written(rig: Rig, *wanted: tuple[str, str]) -> list[Request]:
    """Return the requests with these verbs and names, once the audit log, which has a delay, has all of them."""

    async def are_written() -> list[Request]:
        found = {(request.verb, request.name): request for request in rig.audit.read()}
        return [found[key] for key in wanted] if found.keys() >= set(wanted) else []

    return await eventually(are_written, f"the audit log has {wanted}", READY_SECONDS)


async def _refusals() -> float:
    """Return the number of filter calls that the scheduler answered without a Node."""
    url = f"http://127.0.0.1:{METRICS_PORT}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        found = _REFUSED.search(await answer.text())
    return float(found[1]) if found else 0.0


def _name(number: int) -> str:
    return f"handover-{number:03}"


def _pod(number: int) -> Object:
    return a_pod(_name(number), SCHEDULER_NAME, _WHOLE, NODE)

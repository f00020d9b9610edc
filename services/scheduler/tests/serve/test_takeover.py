"""
Taking over from an earlier scheduler: what is fenced, what is counted, and what may be decided meanwhile.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hami_scheduler.serve import context
from hamicommon.model import Object
from testbed.waiting import eventually

from ..support.api_server import ApiServer
from ..support.builders import a_container, a_pod, promise_of
from ..support.service import Running, running

LEASE: dict[str, Any] = {"must_lead": True, "lease_name": "hami", "lease_namespace": "kube-system", "hostname": "here"}
TERM = "hami.io/scheduler-term"


def held_by(api: ApiServer, holder: str, transitions: int) -> None:
    """Let *holder* have the Lease."""
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 3600, "leaseTransitions": transitions}
    api.put("leases", {"metadata": {"name": "hami", "namespace": "kube-system"}, "spec": spec})


def fences(api: ApiServer) -> dict[str, str]:
    """Return the fence of each Pod that has one."""
    found = {}
    for pod in api.objects["pods"].values():
        for condition in pod["status"].get("conditions", ()):
            if condition["type"] == TERM:
                found[pod["metadata"]["name"]] = condition["message"]
    return found


def waits(name: str, **spec: Any) -> Object:
    """Return a Pod that waits for a device."""
    pod = a_pod(name)
    return {**pod, "spec": {**pod["spec"], **spec}}


async def test_only_pods_that_a_late_binding_could_place_are_fenced(api: ApiServer, tmp_path: Path) -> None:
    """Not one that is bound, gated, being deleted or asks for no device. Each fence has a text of its own."""
    api.put("pods", waits("q"))
    api.put("pods", a_pod("bound", node="exact", allocated="GPU-a,NVIDIA,1000,0:;"))
    api.put("pods", waits("gated", schedulingGates=[{"name": "wait"}]))
    deleted = waits("deleted")
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    api.put("pods", deleted)
    api.put("pods", a_pod("idle", a_container()))
    held_by(api, "here_1", 6)
    async with running(api, tmp_path, **LEASE):
        found = fences(api)

    assert {"p", "q"} == found.keys()
    assert 2 == len(set(found.values()))
    assert all(text.startswith("here_1, term 6, fence ") for text in found.values())


async def test_each_term_begins_with_fences_and_a_standby_writes_none(api: ApiServer, tmp_path: Path) -> None:
    """Also if this replica led before: another one may have led in between."""
    held_by(api, "other_1", 1)
    async with running(api, tmp_path, is_synced=False, **LEASE) as scheduler:
        await eventually(lambda: scheduler.service.readiness.unsynced() is None)
        assert {} == fences(api)
        held_by(api, "here_1", 2)
        await eventually(lambda: scheduler.service.takeover.not_ready() is None and fences(api))
        first = fences(api)["p"]
        held_by(api, "here_2", 4)
        await eventually(lambda: fences(api)["p"] != first)


async def test_bound_pod_that_the_watch_did_not_report_is_counted(api: ApiServer, tmp_path: Path) -> None:
    """A new leader counts what it reads at the begin of its term."""
    async with running(api, tmp_path, is_synced=False, **LEASE) as scheduler:
        held_by(api, "other_1", 1)
        await eventually(lambda: scheduler.service.readiness.unsynced() is None)
        await asyncio.sleep(0.05)
        held_by(api, "here_1", 2)
        await asyncio.sleep(0.05)
        api.is_silent = True
        api.put("pods", a_pod("late", node="exact", allocated="GPU-a,NVIDIA,3000,0:;"))
        held = api.objects["leases"]["kube-system/hami"]
        api.is_silent = False
        api.put("leases", {**held, "spec": {**held["spec"], "holderIdentity": "here_2", "leaseTransitions": 4}})

        await eventually(lambda: promise_of(scheduler.cluster.ledger, "exact", "GPU-a").memory_mib == 3000)


async def test_pod_without_a_fence_blocks_its_vendor_only(
    api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late Binding may give it any device of that vendor. `/readyz` and a metric say how many are left."""
    monkeypatch.setattr(context, "READY_SECONDS", 0.2)
    api.fail("/pods/p/status", *[500] * 1000)
    async with running(api, tmp_path, is_synced=False) as scheduler:
        await eventually(lambda: scheduler.service.takeover.blocked() is None)

        answer = await scheduler.filter(a_pod("other"), "exact")
        assert "which may still bind 1 waiting Pods, such as default/p" in answer["Error"]
        assert "may still bind" in await scheduler.bind(api.put("pods", a_pod("new")), "exact")
        assert scheduler.service.takeover.blocked_for({"AMDGPU"}) is None
        status, text = await scheduler.get(scheduler.url + "/readyz")
        assert (503, True) == (status, "0 of 1 waiting Pods are fenced" in text)
        assert "hami_scheduler_unfenced_pods 1" in (await scheduler.get(scheduler.url + "/metrics"))[1]

        api.faults.clear()
        await eventually(lambda: scheduler.service.takeover.not_ready() is None)
        assert ["exact"] == (await scheduler.filter(a_pod("other"), "exact"))["NodeNames"]


@pytest.mark.parametrize("fault", [404, "gone"])
async def test_pod_that_is_gone_needs_no_fence(api: ApiServer, tmp_path: Path, fault: int | str) -> None:
    """Neither one that was deleted meanwhile, nor one whose name another has now."""
    if fault == "gone":
        api.fail("/pods/p/status", 422)
    else:
        api.fail("/pods/p/status", 404)
    reader = api.handle

    async def handle(request: Any) -> Any:
        if request.method == "PATCH" and request.path.endswith("/pods/p/status"):
            answer = await reader(request)
            api.put("pods", a_pod("p", uid="another")) if fault == "gone" else api.remove("pods", "default/p")
            return answer
        return await reader(request)

    api.handle = handle  # type: ignore[method-assign]
    async with running(api, tmp_path) as scheduler:
        assert 0 == scheduler.service.takeover.unfenced_count


async def test_bind_reads_the_lease_and_believes_it_rather_than_the_watch(api: ApiServer, tmp_path: Path) -> None:
    """The watch is late: for all it says, this replica still leads."""
    held_by(api, "here_1", 2)
    async with running(api, tmp_path, **LEASE) as scheduler:
        pod = scheduler.api.pod("p")
        assert ["exact"] == (await scheduler.filter(pod, "exact"))["NodeNames"]
        api.is_silent = True
        held_by(api, "other_1", 3)

        assert "does not hold the lease" in await scheduler.bind(pod, "exact")
        assert [] == api.writes_to("/binding")
        api.fail("/leases/hami", 500)
        held_by(api, "here_1", 2)
        await scheduler.filter(pod, "exact")
        assert "the lease hami could not be read" in await scheduler.bind(pod, "exact")
        assert 0 == promise_of(scheduler.cluster.ledger, "exact", "GPU-a").replicas


async def test_node_whose_lock_was_waited_for_in_vain_is_not_chosen_again(
    scheduler: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless no other fits."""
    pod = scheduler.api.pod("p")
    monkeypatch.setattr(scheduler.service.context.locks, "contended", lambda: {"exact"})

    assert ["locked"] == (await scheduler.filter(pod, "exact", "locked"))["NodeNames"]
    assert ["exact"] == (await scheduler.filter(pod, "exact"))["NodeNames"]


async def test_choice_of_an_earlier_term_is_not_bound(api: ApiServer, tmp_path: Path) -> None:
    """Whoever led in between may have given away what it needs: the device, the room in a quota, the lock."""
    held_by(api, "here_1", 2)
    async with running(api, tmp_path, **LEASE) as scheduler:
        pod = scheduler.api.pod("p")
        assert ["exact"] == (await scheduler.filter(pod, "exact"))["NodeNames"]
        held_by(api, "other_1", 3)
        await eventually(lambda: scheduler.service.takeover.blocked() is not None)
        held_by(api, "here_1", 4)
        await eventually(lambda: scheduler.service.takeover.blocked_for(("NVIDIA",)) is None)

        assert "chosen in an earlier term" in await scheduler.bind(pod, "exact")
        assert [] == api.writes_to("/binding")
        now = scheduler.api.pod("p")
        assert ["exact"] == (await scheduler.filter(now, "exact"))["NodeNames"]
        assert "" == await scheduler.bind(now, "exact")

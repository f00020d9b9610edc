"""
Shares of ResourceClaims: the records and regions that the device plugin makes, and the containers that use them.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from hami_monitor.adapters.kube import Events, Node, Pods
from hami_monitor.adapters.nvml import Driver
from hami_monitor.adapters.processes import Processes
from hami_monitor.config import Config
from hami_monitor.decide.claims import request_grants, used_by, with_claims, with_priorities
from hami_monitor.decide.containers import ContainerKey
from hami_monitor.decide.pods import MonitoredPod, monitored_pod
from hami_monitor.decide.watchdog.findings import Kind
from hami_monitor.serve.claims import ClaimRegions
from hami_monitor.serve.monitor import Monitor
from hamicommon.dra.grants import CLAIMS, RECORDS, ClaimGrant, GrantedResult, encode_record
from hamicommon.model import Device, MigAllocation, MigPlacement, Object, Share
from hamicommon.pod.control_groups import ContainerGroup
from hamicommon.runtime.api.kube import Kube
from hamicommon.runtime.host.records import UNPRELOADED, record
from hamicommon.vendors.nvidia import REGISTER_KEY
from hamicommon.wire.node_devices import encode_node_devices
from testbed.waiting import eventually

from .pod_server import PodServer
from .region_files import HookPath, Process, a_region
from .service import Labels, Start, eventually_equal
from .test_accounts import sums, write_book
from .watchdog.values import GPU_A, a_device

BIG, SMALL = ContainerKey("c1", "big"), ContainerKey("c1", "small")


def a_grant(name: str = "claim", uid: str = "c1") -> ClaimGrant:
    """Return a claim whose request `big` has two devices, and `small` has one."""
    return ClaimGrant("ns", name, uid, (a_result("big", 3), a_result("big", 4, GPU_A[:-1] + "9"), a_result("small", 1)))


def a_result(request: str, memory_mib: int, uuid: str = GPU_A) -> GrantedResult:
    """Return a share that a request has."""
    return GrantedResult(request, "n1", f"d-{memory_mib}", "s", Share(uuid, "NVIDIA", memory_mib, 10), 1)


def a_claim_pod(uid: str = "u1", request: str = "small", priority: int | None = None) -> Object:
    """Return a running Pod whose container `main` uses one request of the claim `claim`."""
    env = [] if priority is None else [{"name": "CUDA_TASK_PRIORITY", "value": str(priority)}]
    container = {"name": "main", "resources": {"claims": [{"name": "mine", "request": request}]}, "env": env}
    return {
        "metadata": {"uid": uid, "namespace": "ns", "name": f"pod-{uid}"},
        "spec": {
            "nodeName": "n1",
            "resourceClaims": [{"name": "mine", "resourceClaimName": "claim"}],
            "containers": [container, {"name": "other"}],
        },
        "status": {"phase": "Running", "containerStatuses": [{"name": "main", "containerID": f"containerd://{uid}"}]},
    }


def monitored(item: Object) -> MonitoredPod:
    """Return what the monitor keeps of a Pod."""
    pod = monitored_pod(item, "n1")
    assert pod is not None
    return pod


def prepare(hook_path: HookPath, grant: ClaimGrant) -> None:
    """Do what the device plugin does for a claim."""
    records = hook_path.path / CLAIMS / RECORDS
    records.mkdir(parents=True, exist_ok=True)
    (records / f"{grant.uid}.json").write_bytes(encode_record(grant))
    for request in grant.requests:
        directory = hook_path.path / CLAIMS / f"{grant.uid}_{request}"
        directory.mkdir()
        (directory / "r.cache").write_bytes(
            a_region(uuids=(GPU_A.encode(),), processes=(Process({0: (0, 0, 70, 0, 70)}),))
        )


def labels(uid: str) -> Labels:
    """Return the labels of the device of the container `main`."""
    pairs = {"container": "main", "device_uuid": GPU_A, "namespace": "ns", "pod": f"pod-{uid}", "vdevice_index": "0"}
    return tuple(sorted(pairs.items()))


async def test_containers_with_a_claim_are_shown_as_long_as_it_is_prepared(
    hook_path: HookPath, pod_server: PodServer, started: Start
) -> None:
    """Each shows the use of the request, because they have one region. Another container of their Pods has nothing."""
    grant = a_grant()
    prepare(hook_path, grant)
    for uid in ("u1", "u2"):
        pod_server.put(a_claim_pod(uid))

    async with started() as service:

        async def found() -> list[Any]:
            samples = await service.samples()
            names = ("hami_vgpu_memory_used_bytes", "hami_vgpu_memory_limit_bytes", "hami_claim_info")
            return [samples.get(name, {}) for name in names]

        info = {
            (
                ("claim", "claim"),
                ("container", "main"),
                ("namespace", "ns"),
                ("pod", f"pod-{uid}"),
                ("request", "small"),
            )
            for uid in ("u1", "u2")
        }
        both = (labels("u1"), labels("u2"))
        await eventually_equal(found, [dict.fromkeys(both, 70), dict.fromkeys(both, 1 << 20), dict.fromkeys(info, 1)])

        (hook_path.path / CLAIMS / RECORDS / f"{grant.uid}.json").unlink()
        await eventually_equal(found, [{}, {}, {}])


async def test_time_of_a_claim_is_charged_to_the_pod_that_was_bound_first_and_then_to_the_next(
    hook_path: HookPath, pod_server: PodServer, started: Start
) -> None:
    """Two Pods use one share of a tenth of the device. When the first has ended, its time stays and the second pays."""
    hour_ago = time.time() - 3600
    pod_server.change_node(annotations={REGISTER_KEY: encode_node_devices([Device(GPU_A, 10, 1000, 100, "T4")])})
    write_book(hook_path, GPU_A, until_seconds=hour_ago)
    prepare(hook_path, a_grant())
    first, second = a_bound_claim_pod("u1", hour_ago), a_bound_claim_pod("u2", hour_ago + 1800)
    for pod in (first, second):
        pod_server.put(pod)

    async with started() as service:
        await eventually(lambda: sums(service, "hami_share_held_seconds_total", "pod"))
        held = await sums(service, "hami_share_held_seconds_total", "pod")
        idle = await sums(service, "hami_device_idle_seconds_total", "device_uuid")
        assert {"pod-u1": pytest.approx(360, abs=10)} == held
        assert {GPU_A: pytest.approx(3240, abs=40)} == idle

        ended = {"terminated": {"finishedAt": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}}
        statuses = [{"name": "main", "state": ended}]
        pod_server.put({**first, "status": {**first["status"], "phase": "Succeeded", "containerStatuses": statuses}})

        async def is_handed_over() -> bool:
            return "pod-u2" in await sums(service, "hami_share_held_seconds_total", "pod")

        await eventually(is_handed_over, "the second Pod pays")
        later = await sums(service, "hami_share_held_seconds_total", "pod")
        assert held["pod-u1"] <= later["pod-u1"] <= held["pod-u1"] + 10
        assert later["pod-u2"] < 10


def a_bound_claim_pod(uid: str, began_seconds: float) -> Object:
    """Return a running Pod that was bound at *began_seconds*."""
    pod = a_claim_pod(uid)
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began_seconds))
    bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": moment}
    return {**pod, "status": {**pod["status"], "conditions": [bound]}}


@pytest.fixture
async def monitor(hook_path: HookPath, pod_server: PodServer, tmp_path: Path) -> AsyncIterator[Monitor]:
    """Yield a monitor of a Node whose processes are all of a container with a prepared claim."""
    prepare(hook_path, a_grant())
    pod_server.put(a_claim_pod())
    async with await Kube.connect(str(pod_server.kubeconfig(tmp_path)), "test") as kube:
        pods, events = Pods(kube, "n1"), Events(kube)
        running = [asyncio.create_task(one.run()) for one in (pods, events)]
        await pods.synced.wait()
        processes = Processes(lambda _pid: ContainerGroup("u1", "u1"), has_nodes_pids=True)
        clock = count(1000, 3)
        config = Config("n1", str(hook_path.path))
        monitor = Monitor(config, pods, Node(kube, "n1"), Driver(), processes, events, lambda: float(next(clock)))
        await monitor.rounds.round()
        yield monitor
        monitor.close()
        for task in running:
            task.cancel()


@pytest.mark.parametrize(
    ("is_unpreloaded", "kinds"), [pytest.param(False, {Kind.LIBRARY_NOT_LOADED}, id="library"), (True, set())]
)
async def test_program_of_a_claim_must_have_the_library_if_its_request_has(
    hook_path: HookPath, monitor: Monitor, is_unpreloaded: bool, kinds: set[Kind]
) -> None:
    """The device plugin records which requests have none."""
    record(hook_path.path / CLAIMS, UNPRELOADED, str(SMALL), is_so=is_unpreloaded)
    program = await asyncio.create_subprocess_exec("sleep", "300")
    for _ in range(2):
        await monitor.watchdog.look([a_device({program.pid: 100})])
    program.kill()
    await program.wait()

    assert kinds == {finding.kind for finding in monitor.status().watchdog.findings}


def test_unreadable_record_counts_for_nothing_and_is_logged_once(hook_path: HookPath) -> None:
    """The others count."""
    prepare(hook_path, a_grant())
    (hook_path.path / CLAIMS / RECORDS / "c2.json").write_text("{")
    claims = ClaimRegions(str(hook_path.path))

    with capture_logs() as logs:
        claims.look()
        claims.look()

    assert {BIG, SMALL} == claims.grants.keys()
    assert ["The record of a claim is unreadable"] == [entry["event"] for entry in logs]
    claims.regions.close()


def test_share_of_a_request_is_that_of_its_results() -> None:
    """A Pod that has ended holds none, and a claim that is not prepared gives none."""
    grants = [a_grant(), a_grant("elsewhere", "c2")]
    ended = a_claim_pod("u2") | {"status": {"phase": "Succeeded"}}
    other = a_claim_pod("u3")
    other["metadata"]["namespace"] = "theirs"
    pods = [monitored(pod) for pod in (a_claim_pod(request="big"), ended, other)]

    found = with_claims(pods, used_by(pods, grants), request_grants(grants))

    assert [{"main": grants[0].shares("big")}, {}, {}] == [pod.shares for pod in found]
    assert [3, 4] == [share.memory_mib for share in found[0].shares["main"]]


def an_instance(number: int, mig_uuid: str | None = None) -> GrantedResult:
    """Return a MIG instance that the request `small` has; it exists if it has a UUID."""
    ids = (None, None) if mig_uuid is None else (number, 0)
    place = MigAllocation(0, 0, GPU_A, "1g.5gb", MigPlacement(number, 1), mig_uuid, *ids)
    return GrantedResult("small", "n1", f"hami-mig-0-1g-{number}", "", Share(GPU_A, "", 4864, 15), 0, place)


async def test_instance_of_a_claim_is_shown_as_one_of_an_annotation(
    hook_path: HookPath, pod_server: PodServer, started: Start
) -> None:
    """By its UUID once it exists. It has no region and no limit of ours."""
    grant = ClaimGrant("ns", "claim", "c1", (an_instance(5), an_instance(6, "MIG-6")))
    records = hook_path.path / CLAIMS / RECORDS
    records.mkdir(parents=True)
    (records / "c1.json").write_bytes(encode_record(grant))
    pod_server.put(a_claim_pod())

    async with started() as service:

        async def found() -> list[Any]:
            samples = await service.samples()
            names = ("hami_mig_device_info", "hami_vgpu_memory_limit_bytes")
            shown = [dict(one) for one in samples.get("hami_claim_info", {})]
            return [*([dict(one) for one in samples.get(name, {})] for name in names), len(shown)]

        instance = {"mig_uuid": "MIG-6", "profile": "1g.5gb", "gpu_instance_id": "6", "compute_instance_id": "0"}
        share = dict(labels("u1")) | {"vdevice_index": "1"}
        await eventually_equal(found, [[share | instance], [], 1])


def test_request_has_the_highest_priority_of_its_users() -> None:
    """One that nobody uses has the usual one."""
    pods = [monitored(a_claim_pod(uid, priority=number)) for uid, number in (("u1", 0), ("u2", 3), ("u3", None))]
    grants = request_grants([a_grant()])

    found = with_priorities(grants, used_by(pods, [a_grant()]), pods)

    assert (0, grants[BIG].priority) == (found[SMALL].priority, found[BIG].priority)

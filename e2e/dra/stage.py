"""
A real control plane with a Node of each kind, and kube-scheduler, extender and webhook as the chart runs them.

Owns the processes, the history of DeviceClasses, and what a kubelet would do to its Node's resources. kwok plays the
Nodes. Neighbours: `objects` has the objects, `extender` answers kube-scheduler, `table` names what can be measured.
"""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import yaml

from bench.load.chart import NAMESPACE, Chart
from bench.load.rig import KWOK, NODE_STAGE
from bench.load.simulation import COUNT
from conformance.peers.objects import Api
from controlplane.cluster import ControlPlane
from controlplane.pki import issue_serving
from controlplane.programs import build
from dra.extender import Answers, SwitchedExtender
from dra.late_api import LateApi
from dra.objects import class_of, node_of, pod_of, slice_of
from dra.table import BOUND, CLAIMED, HISTORIES, UNREACHABLE, Form, Kind
from hamicommon.model import Object
from harness.claims import API
from minicluster.client import ApiError
from testbed.ports import free_port
from testbed.processes import Process, Supervisor
from testbed.waiting import NotInTimeError, eventually

BIN = Path(sys.executable).parent
CLASSES = f"{API}/deviceclasses"
CLAIMS = API + "/namespaces/{}/resourceclaims"
"""The ResourceClaims of a namespace."""
REGISTRATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
ALLOCATED = "hami.io/vgpu-devices-allocated"
WEBHOOK_PORT = 8443
START_SECONDS = 90.0
REVIEW_SECONDS = 40.0
"""Our scheduler looks at DeviceClasses every ten seconds."""
SETTLED_SECONDS = 30.0
APART_SECONDS = 1.1
"""The times of objects have whole seconds, and the newer DeviceClass wins."""

Measured = Mapping[tuple[Form, Kind], str]
"""The outcome of a Pod of each form that may only go to the Node of one kind."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The control plane, and helpers for the tests."""

    api: Api
    extender: SwitchedExtender
    late: LateApi
    """The API server as our scheduler has it."""
    scheduler: Process
    """Our scheduler."""
    metrics: str
    """Where our scheduler is scraped."""
    folder: Path
    """All its files."""
    kubeconfig: Path
    """For clients of its API server."""
    minor: str
    """Of its Kubernetes, such as `1.37`."""

    async def replay(self, history: str) -> None:
        """Delete every DeviceClass, do what *history* says, and wait until the Nodes list what it makes them list."""
        for name in await self.api.names(CLASSES):
            await self.api.delete(f"{CLASSES}/{name}")
        for verb, name in HISTORIES[history]:
            await asyncio.sleep(APART_SECONDS)
            if verb == "create":
                await self.api.create(CLASSES, class_of(name))
            elif verb == "delete":
                await self.api.delete(f"{CLASSES}/{name}")
            else:
                await self.api.patch(f"{CLASSES}/{name}", {"metadata": {"annotations": {"hami.io/updated": "1"}}})
        is_mapped = bool(await self.api.names(CLASSES))

        async def are_listed() -> bool:
            """Copy capacity into allocatable, as kubelets do, and return whether amounts are listed as they should."""
            nodes, _ = await self.api.list("/api/v1/nodes")
            listing = {node["metadata"]["name"] for node in nodes if await self._copy(node)}
            return listing == ({kind.value for kind in Kind if kind is not Kind.DRA} if is_mapped else set())

        await eventually(are_listed, f"Nodes list amounts: {is_mapped}", REVIEW_SECONDS)
        await asyncio.sleep(APART_SECONDS)

    async def _copy(self, node: Object) -> bool:
        """
        Copy the amounts in the capacity of *node* into allocatable. Returns whether there are some.

        Source: https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/kubelet/nodestatus/setters.go#L289-L306
        """
        capacity, allocatable = node["status"]["capacity"], node["status"]["allocatable"]
        changed = {
            name: capacity.get(name)
            for name in capacity.keys() | allocatable.keys()
            if "/" in name and name != COUNT and capacity.get(name) != allocatable.get(name)
        }
        if changed:
            path = f"/api/v1/nodes/{node['metadata']['name']}/status"
            await self.api.patch(path, {"status": {"allocatable": changed}})
        return any("/" in name and name != COUNT for name in capacity)

    async def measure(self, answers: Answers, expected: Measured) -> Measured:
        """Return what becomes of a Pod of each form on each Node; after some time, if it is not what is *expected*."""
        pods = {(form, kind): f"{form.name}-{kind.name}".lower() for form in Form for kind in Kind}
        async with self.extender.answering(answers):
            for (form, kind), name in pods.items():
                await self.api.create(self.api.pods, pod_of(name, form, kind.value))
            found: Measured = {}

            async def is_as_expected() -> bool:
                nonlocal found
                found = {key: outcome_of(await self.api.pod(name)) for key, name in pods.items()}
                return found == expected

            with suppress(NotInTimeError):
                await eventually(is_as_expected, seconds=SETTLED_SECONDS)
            await self.clear()
        return found

    async def bind(self, body: Object) -> None:
        """Bind the Pod of a `/bind` call, with a grant in the Binding as our scheduler writes it."""
        grant = {ALLOCATED: "GPU-0,NVIDIA,3000,10:;"}
        await self.api.bind(body["PodName"], body["Node"], uid=body["PodUID"], annotations=grant)

    async def clear(self) -> None:
        """
        Delete the Pods, wait until they and their claims are gone, and work in a new namespace.

        kwok deletes Pods by name only, and a late request would delete a later Pod of the same name.
        """
        claims = CLAIMS.format(self.api.namespace)

        async def are_gone() -> bool:
            await self.api.request("DELETE", self.api.pods, {"gracePeriodSeconds": 0})
            return not await self.api.names(self.api.pods) and not await self.api.names(claims)

        await eventually(are_gone, "Pods and claims are gone", 60)
        await self.api.remove_namespace()
        await self.api.enter_new_namespace()


def outcome_of(pod: Object) -> str:
    """Return what has become of *pod*, in the words of `table`; nothing if kube-scheduler has not decided yet."""
    status = pod.get("status") or {}
    if pod["spec"].get("nodeName"):
        return CLAIMED if status.get("extendedResourceClaimStatus") else BOUND
    decision: Object = next((found for found in status.get("conditions") or () if found["type"] == "PodScheduled"), {})
    message = decision.get("message", "")
    if "connection refused" in message:
        return UNREACHABLE
    reasons = re.sub(r"^\d+/\d+ nodes are available: ", "", message).split(". ")[0].split(", ")
    told = [re.sub(r"^\d+ ", "", reason).rstrip(".") for reason in reasons if "node affinity/selector" not in reason]
    return ", ".join(told)


@asynccontextmanager
async def staged(folder: Path, minor: str, values: Mapping[str, bool] | None = None) -> AsyncIterator[Stage]:
    """During a block, run the stage on Kubernetes *minor* with *values* of the chart, and its files in *folder*."""
    kwok = await asyncio.to_thread(build.made, build.KWOK, print) / "kwok"
    plane, supervisor = ControlPlane(folder / "plane", minor), Supervisor(folder)
    programs = await asyncio.to_thread(build.binaries, minor, print)
    chart = Chart(programs / "helm", build.KUBERNETES[minor], values)
    try:
        await asyncio.to_thread(plane.up, [], print)
        async with Api.from_kubeconfig(plane.kubeconfig, "dra") as api, LateApi(api).serving() as late:
            await api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
            (folder / "device-config.yaml").write_text(chart.device_config)
            (folder / "kwok.yaml").write_text(NODE_STAGE)
            kubeconfig = f"--kubeconfig={plane.kubeconfig}"
            supervisor.start("kwok", [str(kwok), kubeconfig, f"--config={folder / 'kwok.yaml'}", *KWOK])
            await _start_webhook(api, supervisor, chart, plane.control.living_pid())
            late.write_kubeconfig(folder / "late.kubeconfig")
            extender, metrics = _start_schedulers(supervisor, chart, kubeconfig, programs)
            for found in chart.device_classes:
                await api.create(CLASSES, found)
            await api.enter_new_namespace()
            stage = Stage(
                api, extender, late, supervisor.processes["scheduler"], metrics, folder, plane.kubeconfig, minor
            )
            extender.accepting.bind = stage.bind
            yield stage
    finally:
        supervisor.stop()
        await asyncio.to_thread(plane.down)


async def _start_webhook(api: Api, supervisor: Supervisor, chart: Chart, control: int) -> None:
    """Start the webhook in the network of process *control*, where the API server reaches it, and register it."""
    folder = supervisor.folder
    authority = issue_serving(folder)
    flags = chart.webhook_arguments(
        metrics_bind_address="",
        device_config_file=str(folder / "device-config.yaml"),
        cert_file=str(folder / "tls.crt"),
        key_file=str(folder / "tls.key"),
    )
    argv = ["nsenter", f"--net=/proc/{control}/ns/net", str(BIN / "hami-webhook"), *flags]
    supervisor.start("webhook", argv, {"HOME": "/nonexistent"})
    url = f"https://127.0.0.1:{WEBHOOK_PORT}/webhook"
    await api.create(REGISTRATIONS, chart.webhook_registration(url, authority))


def _start_schedulers(
    supervisor: Supervisor, chart: Chart, kubeconfig: str, programs: Path
) -> tuple[SwitchedExtender, str]:
    """Start our scheduler and kube-scheduler, and return the extender between them, and the URL of our metrics."""
    folder, port, metrics_port = supervisor.folder, free_port(), free_port()
    flags = chart.scheduler_arguments(
        http_bind=f"127.0.0.1:{port}",
        metrics_bind_address=f"127.0.0.1:{metrics_port}",
        device_config_file=str(folder / "device-config.yaml"),
    )
    late = f"--kubeconfig={folder / 'late.kubeconfig'}"
    supervisor.start("scheduler", [str(BIN / "hami-scheduler"), late, *flags, "--explain-bind-address="])
    extender = SwitchedExtender(free_port(), f"http://127.0.0.1:{port}")
    config = folder / "kube-scheduler.yaml"
    settings = chart.kube_scheduler_config(Path(kubeconfig.partition("=")[2]), extender.url)
    config.write_text(yaml.safe_dump(settings))
    supervisor.start("kube-scheduler", [str(programs / "kube-scheduler"), f"--config={config}", "--secure-port=0"])
    return extender, f"http://127.0.0.1:{metrics_port}/metrics"


async def add_a_node_of_each_kind(stage: Stage) -> None:
    """Add the Nodes of the table, with their slices."""
    for kind in Kind:
        await stage.api.create("/api/v1/nodes", node_of(kind))
        if kind in (Kind.DRA, Kind.MOVED):
            await stage.api.create(f"{API}/resourceslices", slice_of(kind.value))


async def warm_up(stage: Stage, node: str = Kind.PLUGIN.value) -> None:
    """Wait until a Pod with a share passes webhook, kube-scheduler and our scheduler, and gets *node*."""
    api = stage.api

    async def passes() -> bool:
        with suppress(ApiError):  # it exists already, or the webhook does not listen yet
            await api.create(api.pods, pod_of("first", Form.SHARE, node))
        return outcome_of(await api.pod("first")) == BOUND

    async with stage.extender.answering(Answers.OURS):
        await eventually(passes, "a first Pod is bound", START_SECONDS)
        await stage.clear()

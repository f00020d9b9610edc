"""
GPUs with MIG as the driver keeps them, in memory, and a Node around one `MigInstances` that can be killed at any step.

The model refuses what a driver refuses: a place that is taken, an instance that a process uses.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from device_plugin_builders import RESOURCE, VENDOR

from hami_device_plugin.adapters.nvml.mig import MigNvml
from hami_device_plugin.decide.allocate.owner import Allocated
from hami_device_plugin.decide.dra.instances import with_prepared
from hami_device_plugin.decide.inventory import SharingPolicy
from hami_device_plugin.decide.mig.claims import Claims
from hami_device_plugin.decide.mig.geometry import Gpu, GpuProfile, Instance, MigMode, at
from hami_device_plugin.decide.mig.journal import Journal, Owner
from hami_device_plugin.metrics import Metrics
from hami_device_plugin.serve.mig.instances import MigInstances, MigPolicy
from hami_device_plugin.serve.mig.reports import MigReports
from hamicommon.dra.grants import ClaimGrant
from hamicommon.errors import HamiError
from hamicommon.model import MigAllocation, MigPlacement, Share
from hamicommon.pod.reading import Pod, read_pod
from hamicommon.runtime.host.nvml import Nvml
from hamicommon.vendors.nvidia import MigProfileRule
from hamicommon.wire import keys
from hamicommon.wire.mig import decode_mig_allocations, encode_mig_allocations

GPU = "GPU-aaaaaaaa-0000-4000-8000-000000000000"
NODE = "n1"
A100 = "NVIDIA A100-SXM4-40GB"
PROFILES = (
    GpuProfile(19, 1, 4864, 14, 7, tuple(MigPlacement(start, 1) for start in range(7))),
    GpuProfile(14, 2, 9856, 28, 3, tuple(MigPlacement(start, 2) for start in (0, 2, 4))),
    GpuProfile(9, 3, 19968, 42, 2, tuple(MigPlacement(start, 4) for start in (0, 4))),
    GpuProfile(0, 7, 40192, 98, 1, (MigPlacement(0, 8),)),
)
"""Of an A100 with 40 GB, as its driver reports them."""
NAMES = {1: "1g.5gb", 2: "2g.10gb", 3: "3g.20gb", 7: "7g.40gb"}
RULES = (MigProfileRule(("A100-SXM4-40GB",), tuple(NAMES.values())),)


class DriverRefusesError(HamiError):
    """The driver does not do it."""


class Killed(BaseException):
    """The process ends here."""


def a_gpu(**changes: Any) -> Gpu:
    """Return an A100 in MIG mode without instances."""
    return replace(Gpu(GPU, 0, A100, MigMode.ON, PROFILES), **changes)


def an_instance(number: int, profile: GpuProfile, start: int, **changes: Any) -> Instance:
    """Return an instance with one compute instance."""
    size = profile.placements[0].size
    return replace(Instance(number, profile.id, MigPlacement(start, size), (0,), f"MIG-{number}"), **changes)


@dataclass
class ModelDriver:
    """The driver of one GPU; `steps` calls of the plugin from now, `Killed` is raised."""

    gpu: Gpu = field(default_factory=a_gpu)
    tick: Callable[[], None] = lambda: None
    refused: set[MigPlacement] = field(default_factory=set)
    """Places where the driver creates nothing."""
    is_held: bool = False
    """Whether another client holds the driver, so that MIG cannot be switched on."""
    _uuids: int = 0

    def add(self, profile: GpuProfile, placement: MigPlacement) -> Instance:
        """Create an instance, as an administrator does."""
        used = {found.id for found in self.gpu.instances}
        number = next(candidate for candidate in range(1, 20) if candidate not in used)
        self._uuids += 1
        created = Instance(number, profile.id, placement, (0,), f"MIG-{self._uuids}")
        self.gpu = replace(self.gpu, instances=(*self.gpu.instances, created))
        return created

    def remove(self, number: int) -> None:
        """Remove an instance."""
        self.gpu = replace(self.gpu, instances=tuple(one for one in self.gpu.instances if one.id != number))

    def change(self, number: int, **changes: Any) -> None:
        """Change an instance."""
        instances = tuple(replace(one, **changes) if one.id == number else one for one in self.gpu.instances)
        self.gpu = replace(self.gpu, instances=instances)

    async def read_gpus(self) -> tuple[Gpu, ...]:
        """Return the GPU."""
        return (self.gpu,)

    def clients(self) -> str:
        """Name another program that has the driver open."""
        return "dcgm (pid 7)"

    async def switch_on(self, gpu_uuid: str) -> MigMode:
        """Switch MIG on."""
        self.tick()
        self.gpu = replace(self.gpu, mode=MigMode.TURNING_ON if self.is_held else MigMode.ON)
        return self.gpu.mode

    async def create(self, gpu_uuid: str, profile: GpuProfile, placement: MigPlacement) -> Instance:
        """Create the GPU instance and then its compute instance."""
        self.tick()
        if at(placement, self.gpu.instances) or placement in self.refused:
            raise DriverRefusesError("In use by another client")
        created = self.add(profile, placement)
        self.change(created.id, compute_ids=(), mig_uuid=None)
        self.tick()
        self.change(created.id, compute_ids=(0,), mig_uuid=created.mig_uuid)
        self.tick()
        return created

    async def destroy(self, gpu_uuid: str, gpu_instance_id: int) -> None:
        """Destroy the compute instance and then the GPU instance."""
        self.tick()
        found = next((one for one in self.gpu.instances if one.id == gpu_instance_id), None)
        if found is None:
            return
        if found.is_busy:
            raise DriverRefusesError("In use by another client")
        self.change(gpu_instance_id, compute_ids=(), mig_uuid=None)
        self.tick()
        self.remove(gpu_instance_id)
        self.tick()


@dataclass
class MemoryStore:
    """A journal that outlives the plugin."""

    journal: Journal = ()
    tick: Callable[[], None] = lambda: None

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Do nothing: there is one plugin."""
        yield

    def read(self) -> Journal:
        """Return it."""
        return self.journal

    def write(self, journal: Journal) -> None:
        """Replace it."""
        self.tick()
        self.journal = journal
        self.tick()


class ModelNode:
    """One Node: driver, journal, Pods and the plugin's present process."""

    def __init__(self, gpu: Gpu | None = None, *, is_by_claims: bool = False) -> None:
        self.is_by_claims = is_by_claims
        self.driver = ModelDriver(gpu or a_gpu(), self._tick)
        self.store = MemoryStore((), self._tick)
        self.items: dict[str, dict[str, Any]] = {}
        self.allocated: list[Allocated] = []
        self.asked: list[Owner] = []
        self.records: dict[str, ClaimGrant] = {}
        """Of prepared claims, by UID."""
        self.claims: set[str] = set()
        """UIDs of the claims that the API server has."""
        self.is_server_down = False
        self.announced: str | None = None
        self.lets_go = True
        """Whether the other client of the driver obeys the announcement."""
        self.metrics = Metrics()
        self.sent: list[tuple[str, str]] = []
        """Reason and message of each Event."""
        self._left: int | None = None
        self.restart()

    def restart(self) -> None:
        """Start the plugin's next process."""
        self._left = None
        self.mig = MigInstances(
            self.driver,
            self.store,
            self,
            self,
            MigReports(self.metrics, self._send),
            MigPolicy(RULES, VENDOR.allocated_key, SharingPolicy(1), self.is_by_claims),
            self,
        )

    def kill_after(self, steps: int) -> None:
        """Let the process end after *steps* more steps of the driver, the journal or the API server."""
        self._left = steps

    def bind(self, name: str, *allocations: MigAllocation, containers: int = 1) -> Pod:
        """Store a Pod with these promises, and return it."""
        shares = [
            "".join(f"{one.gpu_uuid},NVIDIA,5000,10:" for one in allocations if one.container_index == index)
            for index in range(containers)
        ]
        counts = [sum(one.container_index == index for one in allocations) for index in range(containers)]
        self.items[name] = {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": f"uid-{name}",
                "annotations": {
                    VENDOR.allocated_key: "".join(f"{text};" for text in shares),
                    keys.MIG_ALLOCATIONS: encode_mig_allocations(allocations),
                },
            },
            "spec": {
                "nodeName": NODE,
                "containers": [
                    {"name": f"c{index}", "resources": {"limits": {RESOURCE: str(count)}} if count else {}}
                    for index, count in enumerate(counts)
                ],
            },
            "status": {"phase": "Running"},
        }
        return self.pod(name)

    def pod(self, name: str) -> Pod:
        """Return a Pod as it is now."""
        return read_pod(self.items[name], (VENDOR,))

    @property
    def pods(self) -> dict[str, Pod]:
        """Every Pod, by UID."""
        return {pod.uid: pod for pod in map(self.pod, self.items)}

    def entries(self) -> Sequence[Allocated]:
        """Return the kubelet's checkpoint."""
        return self.allocated

    def end(self, name: str) -> None:
        """Let a Pod end."""
        self.items[name]["status"]["phase"] = "Succeeded"

    def named(self, name: str) -> list[str | None]:
        """Return the MIG UUIDs in a Pod's annotation."""
        text = self.items[name]["metadata"]["annotations"][keys.MIG_ALLOCATIONS]
        return [one.mig_uuid for one in decode_mig_allocations(text)]

    async def start(self, name: str, container: int = 0) -> tuple[str, ...]:
        """Start a container: return its MIG UUIDs."""
        pod = self.pod(name)
        mine = [
            one
            for one in decode_mig_allocations(pod.annotations[keys.MIG_ALLOCATIONS])
            if one.container_index == container
        ]
        shares = tuple(Share(one.gpu_uuid, "NVIDIA", 5000, 10) for one in mine)
        return await self.mig.realized(pod, f"c{container}", shares)

    async def started(self, name: str) -> Sequence[str]:
        """Start a container, and let a process of it run on its instances."""
        uuids = await self.start(name)
        for found in self.driver.gpu.instances:
            if found.mig_uuid in uuids:
                self.driver.change(found.id, is_busy=True)
        return uuids

    def uuids(self) -> list[str | None]:
        """Return the MIG UUIDs of the GPU, by placement."""
        return [found.mig_uuid for found in sorted(self.driver.gpu.instances, key=lambda one: one.placement.start)]

    def counted(self, profile: str) -> dict[str, int]:
        """Return how many instances of *profile* the metric shows, by state."""
        samples = [sample for family in self.metrics.registry.collect() for sample in family.samples]
        return {
            sample.labels["state"]: int(sample.value)
            for sample in samples
            if sample.name == "hami_device_plugin_mig_instances" and sample.labels["profile"] == profile
        }

    def changes(self) -> dict[tuple[str, str], int]:
        """Return the counted changes, by change and result."""
        samples = [sample for family in self.metrics.registry.collect() for sample in family.samples]
        return {
            (sample.labels["change"], sample.labels["result"]): int(sample.value)
            for sample in samples
            if sample.name == "hami_device_plugin_mig_changes_total" and sample.value
        }

    def added_to(self, claims: Claims) -> Claims:
        """Return *claims* and what prepared claims have."""
        return with_prepared(claims, self.records.values())

    async def is_over(self, owner: Owner) -> bool:
        """Return whether a claim is gone, and remember which was asked for."""
        self.asked.append(owner)
        return owner.uid not in self.claims

    def _send(self, reason: str, message: str, *, is_warning: bool = False, about: str = "") -> None:
        self.sent.append((reason, message))

    def _tick(self) -> None:
        if self._left is None:
            return
        if self._left == 0:
            raise Killed
        self._left -= 1

    async def has_ended(self, uid: str, namespace: str, name: str) -> bool:
        """Return whether a Pod has ended, and remember who was asked for."""
        if self.is_server_down:
            raise DriverRefusesError("no API server")
        self.asked.append(Owner(uid, namespace, name))
        item = self.items.get(name)
        return item is None or item["metadata"]["uid"] != uid or item["status"]["phase"] in ("Succeeded", "Failed")

    async def announce_mig_change(self, reason: str | None) -> None:
        """Let the other client of the driver hear *reason*."""
        if reason != self.announced:
            self.announced = reason
            self.driver.is_held &= not self.lets_go

    async def change_mig_allocations(self, pod: Pod, change: Callable[[str], str]) -> None:
        """Write a Pod's annotation, as the API server does."""
        self._tick()
        annotations = self.items[pod.name]["metadata"]["annotations"]
        annotations[keys.MIG_ALLOCATIONS] = change(annotations[keys.MIG_ALLOCATIONS])
        self._tick()


def a_promise(slices: int = 1, start: int = 0, *, container: int = 0, device: int = 0, **changes: Any) -> MigAllocation:
    """Return the promise of one instance."""
    size = next(profile for profile in PROFILES if profile.slices == slices).placements[0].size
    return replace(MigAllocation(container, device, GPU, NAMES[slices], MigPlacement(start, size)), **changes)


async def print_instances() -> None:
    """Print the MIG UUIDs of the fake driver's GPUs."""
    nvml = Nvml()
    await nvml.open("/")
    for gpu in await MigNvml(nvml).read_gpus():
        for found in gpu.instances:
            print(found.mig_uuid)  # noqa: T201


async def create_instances(starts: Sequence[int]) -> None:
    """Cut the fake driver's first GPU into instances of one slice at *starts*, as an administrator does."""
    nvml = Nvml()
    await nvml.open("/")
    driver = MigNvml(nvml)
    gpu = (await driver.read_gpus())[0]
    await driver.switch_on(gpu.uuid)
    profile = next(found for found in gpu.profiles if found.slices == 1)
    for start in starts:
        created = await driver.create(gpu.uuid, profile, MigPlacement(start, 1))
        print(created.mig_uuid)  # noqa: T201

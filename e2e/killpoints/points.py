"""
The kill points, by the part that is killed.

A point is the begin of a step: the process dies before the step's first instruction, so after the step before it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from harness.clusters.mixed import DRIVER, LOCKED, MIG, MPS

SHARED = "shared-a"
"""The Node whose plugin finds owners by identity, and whose library limits memory."""
LOCK = LOCKED[0].name

_WEBHOOK, _SCHEDULER, _PLUGIN, _MONITOR = "hami_webhook", "hami_scheduler", "hami_device_plugin", "hami_monitor"
_RUNTIME = "hamicommon.runtime"
_MPS = f"{_PLUGIN}.adapters.mps.control:MpsControl"


class Moment(Enum):
    """When a process comes to a point."""

    START = "start"
    """When it starts."""
    LOAD = "load"
    """While Pods start and end."""
    CHANCE = "chance"
    """At a line that is drawn, of all that it runs from its start on."""


@dataclass(frozen=True)
class Point:
    """One step."""

    step: str
    """For people: what would come next."""
    place: str
    """The function, `module:name` or `module:class.name` where its caller looks it up; the driver's or libc's call."""
    moment: Moment = Moment.LOAD
    calls: int = 1
    """How many calls there are at least; before which of them the process dies is drawn."""
    node: str = SHARED
    """Where the process runs; or, for a part that is on no Node, the Node that it needs to come to this point."""

    @property
    def is_chance(self) -> bool:
        """Whether *place* names packages, one of whose lines is drawn."""
        return self.moment is Moment.CHANCE


def _start(step: str, place: str, calls: int = 1, node: str = SHARED) -> Point:
    return Point(step, place, Moment.START, calls, node)


CONTAINER_START = (
    Point("a bound Pod's container gets its directory", f"{_PLUGIN}.adapters.regions:premake_directory"),
    Point("the directory gets a region", f"{_PLUGIN}.adapters.regions:_create"),
    Point("Allocate names the container's CDI device", f"{_PLUGIN}.decide.allocate.cdi.spec:new_device"),
    Point("PreStartContainer asks who owns the replicas", f"{_PLUGIN}.serve.allocate.identity:owner"),
    Point("the region gets its name", f"{_PLUGIN}.adapters.regions:_use_spare"),
    Point("the limits get their contents", f"{_PLUGIN}.adapters.regions:_fill"),
    Point("the spec is written", f"{_PLUGIN}.adapters.cdi_files:write_spec"),
    Point("the spec gets a file", f"{_RUNTIME}.host.atomic_file:_new_temporary"),
    Point("the spec gets its name", "pathlib:Path.replace"),
    Point("the kubelet gets its answer", "prometheus_client:Histogram.observe"),
    Point("the Pod is marked", f"{_PLUGIN}.adapters.kube:NodeKube.patch_pod"),
)
"""The steps of the device plugin that start a container, in order."""

POINTS: Mapping[str, tuple[Point, ...]] = {
    "webhook": (
        _start("the device config is read", f"{_RUNTIME}.program.device_config:read_texts"),
        _start("the certificate's rounds begin", f"{_WEBHOOK}.certificates.certificate_loop:CertificateLoop.run"),
        _start("it listens", f"{_RUNTIME}.serving.http:serve"),
        _start("the quotas are counted", f"{_WEBHOOK}.adapters.kube:QuotaWatch._replace_quotas"),
        Point("a review is read", f"{_WEBHOOK}.adapters.http:read_review", calls=3),
        Point("a Pod is admitted", f"{_WEBHOOK}.serve.admissions:Admissions.decide", calls=3),
        Point("the answer is written", f"{_WEBHOOK}.adapters.http:answer", calls=3),
        Point("a changed device config is taken", f"{_WEBHOOK}.serve.admissions:Admissions.take"),
        Point("a certificate is due", f"{_WEBHOOK}.certificates.renewal:renew"),
        Point("an authority is made", f"{_WEBHOOK}.certificates.pki:new_authority"),
        Point("the certificate is stored", f"{_WEBHOOK}.certificates.certificate_loop:CertificateLoop._store"),
        Point("the authority is published", f"{_WEBHOOK}.certificates.certificate_loop:CertificateLoop._publish"),
        Point("the certificate is served", f"{_WEBHOOK}.certificates.certificate_loop:CertificateLoop._serve"),
        Point("metrics are collected", f"{_RUNTIME}.serving.http:_Scrapes.answer"),
    ),
    "scheduler": (
        _start("the device config is read", f"{_RUNTIME}.program.device_config:read_texts"),
        _start("it listens", f"{_SCHEDULER}.main:serve", calls=2),
        _start("the Nodes are counted", f"{_SCHEDULER}.state.cluster:Cluster.replace_nodes"),
        _start("the Pods are counted", f"{_SCHEDULER}.state.cluster:Cluster.replace_pods"),
        _start("the Lease is seen", f"{_SCHEDULER}.serve.background.readiness:Readiness._replace_leases"),
        _start("it takes over", f"{_SCHEDULER}.serve.background.takeover:Takeover._take_over"),
        _start("all Pods are read", f"{_SCHEDULER}.serve.background.takeover:Takeover._read_pods"),
        _start("a bound Pod is counted", f"{_SCHEDULER}.state.cluster:Cluster.put_read"),
        _start("a waiting Pod is fenced", f"{_SCHEDULER}.serve.background.takeover:fence"),
        _start("the fence is written", f"{_SCHEDULER}.serve.kube.api:KubeApi.mark_pod"),
        _start("the fence's outcome is taken", f"{_SCHEDULER}.serve.background.takeover:take_outcome"),
        Point("filter is asked", f"{_SCHEDULER}.serve.listen.http:filter_pod", calls=3),
        Point("devices are chosen", f"{_SCHEDULER}.serve.filter:_choose", calls=3),
        Point("devices are reserved", f"{_SCHEDULER}.state.cluster:Cluster.reserve", calls=3),
        Point("filter is answered", f"{_SCHEDULER}.serve.listen.http:filter_body", calls=3),
        Point("bind is asked", f"{_SCHEDULER}.serve.listen.http:bind_pod", calls=3),
        Point("the Binding is planned", f"{_SCHEDULER}.serve.bind:plan_bind", calls=3),
        Point("the node lock is asked for", f"{_SCHEDULER}.bind.locking:NodeLocks.acquire", node=LOCK),
        Point("the node lock is read", f"{_SCHEDULER}.serve.kube.api:KubeApi.read_lock", node=LOCK),
        Point("the node lock is written", f"{_SCHEDULER}.serve.kube.api:KubeApi.write_lock", node=LOCK),
        Point("the Lease is read before a write", f"{_SCHEDULER}.serve.background.readiness:read_lease", calls=3),
        Point("the grant is checked once more", f"{_SCHEDULER}.serve.bind_writer:_check", calls=3),
        Point("the Binding is sent", f"{_SCHEDULER}.serve.kube.api:KubeApi.bind", calls=3),
        Point("the Binding is certain", f"{_SCHEDULER}.state.reservation:Reservations.written", calls=3),
        Point("the Pod gets its label", f"{_SCHEDULER}.serve.kube.api:KubeApi.label_pod", node=LOCK),
        Point("bind is answered", f"{_SCHEDULER}.serve.listen.http:bind_body", calls=3),
        Point("a Pod is seen", f"{_SCHEDULER}.state.cluster:Cluster.put_pod", calls=3),
        Point("the end of a Pod is seen", f"{_SCHEDULER}.state.cluster:Cluster.drop_pod"),
        Point("a Node is seen", f"{_SCHEDULER}.state.cluster:Cluster.put_node"),
        Point("a waiting Pod gets a reason", f"{_SCHEDULER}.serve.kube.api:KubeApi.queue_event"),
        Point("Events are written", f"{_SCHEDULER}.serve.kube.api:KubeApi._write_in_turn"),
        Point("reservations expire", f"{_SCHEDULER}.state.cluster:Cluster.expire"),
        Point("node locks are tidied", f"{_SCHEDULER}.bind.locking:NodeLocks.tidy", node=LOCK),
        Point("a waiting Pod may be woken", f"{_SCHEDULER}.serve.wakeups:Wakeups.wake_one"),
        Point("metrics are collected", f"{_SCHEDULER}.serve.listen.metrics:ClusterCollector.collect"),
        Point("a changed device config is taken", f"{_SCHEDULER}.state.cluster:Cluster.take_over"),
    ),
    "plugin": (
        *CONTAINER_START,
        _start("the settings are read", f"{_PLUGIN}.config.loader:load"),
        _start("the driver is opened", f"{_PLUGIN}.serve.session:open_driver"),
        _start("the devices are found", f"{_PLUGIN}.serve.session:find_devices"),
        _start("files are installed", f"{_PLUGIN}.serve.session:install_files"),
        _start("the library is copied", f"{_PLUGIN}.adapters.library:write_atomically", calls=2),
        _start("what a killed process left is removed", f"{_PLUGIN}.adapters.library:remove_temporaries"),
        _start("the Node is probed", f"{_PLUGIN}.serve.session:probe"),
        _start("the CDI directory is tried", f"{_PLUGIN}.adapters.cdi_files:try_directory"),
        _start("a session serves", f"{_PLUGIN}.serve.service:Service.start"),
        _start("the socket is made", f"{_PLUGIN}.adapters.kubelet:PluginServer.start"),
        _start("it registers with the kubelet", f"{_PLUGIN}.serve.kubelet_loop:register"),
        _start("the kubelet gets the devices", f"{_PLUGIN}.adapters.kubelet:list_message"),
        _start("the Node is announced", f"{_PLUGIN}.serve.node_loop:NodeLoop._announce"),
        _start("unused libraries are removed", f"{_PLUGIN}.adapters.library:remove_unused"),
        _start("regions are measured", f"{_PLUGIN}.serve.node_loop:cut_regions"),
        _start("removed directories are deleted", f"{_PLUGIN}.serve.node_loop:delete_some"),
        _start("the Node is kept up to date", f"{_PLUGIN}.serve.node_loop:NodeLoop.reconcile"),
        _start("health is read", f"{_PLUGIN}.serve.health.health_loop:HealthLoop.look"),
        Point("Allocate is asked", f"{_PLUGIN}.serve.allocate.calls:Calls.allocate"),
        Point("a preference is asked", f"{_PLUGIN}.serve.allocate.calls:Calls.preferred"),
        Point("the specs of ended Pods are removed", f"{_PLUGIN}.serve.node_loop:_remove"),
        Point("the limits of ended Pods are removed", f"{_PLUGIN}.serve.node_loop:forget_limits"),
        Point("a changed device config is taken", f"{_PLUGIN}.serve.session:Session.adopt"),
        Point("the pending Pod is looked for", f"{_PLUGIN}.serve.allocate.lock:LockAllocator._pending_pod", node=LOCK),
        Point("the container's directory is made", f"{_PLUGIN}.serve.allocate.lock:prepare_directory", node=LOCK),
        Point("what is left is written", f"{_PLUGIN}.adapters.kube:NodeKube.annotate_pod", calls=2, node=LOCK),
        Point("the allocation is finished", f"{_PLUGIN}.serve.allocate.lock:LockAllocator._finish", node=LOCK),
        Point("the node lock is released", f"{_PLUGIN}.adapters.kube:NodeKube.release_lock", node=LOCK),
        _start("the journal is locked", f"{_PLUGIN}.adapters.mig_journal:JournalFile._is_locked_now", node=MIG.name),
        _start("the journal is read", f"{_PLUGIN}.adapters.mig_journal:JournalFile.read", node=MIG.name),
        _start("instances are repaired", f"{_PLUGIN}.serve.mig.instances:MigInstances._repaired", node=MIG.name),
        Point("instances are wanted", f"{_PLUGIN}.serve.mig.instances:MigInstances._realized", node=MIG.name),
        Point("the journal is written", f"{_PLUGIN}.adapters.mig_journal:JournalFile.write", calls=2, node=MIG.name),
        Point("an instance is created", f"{_PLUGIN}.adapters.nvml.mig:MigNvml.create", node=MIG.name),
        Point("its compute instance is created", f"{_PLUGIN}.adapters.nvml.mig:_create_compute", node=MIG.name),
        Point(
            "the Pod names its instances",
            f"{_PLUGIN}.adapters.kube:NodeKube.change_mig_allocations",
            node=MIG.name,
        ),
        Point("an instance is destroyed", f"{_PLUGIN}.adapters.nvml.mig:MigNvml.destroy", node=MIG.name),
        Point("the GPU instance is destroyed", f"{_PLUGIN}.adapters.nvml.mig:_destroy", node=MIG.name),
        _start("the plugin's own cgroup is made", f"{_PLUGIN}.adapters.cgroups:own_group", node=DRIVER.name),
        _start("the driver's limits are tried", f"{_PLUGIN}.serve.probe.enforcement:limits_problem", node=DRIVER.name),
        _start("library or limit hook are installed", f"{_PLUGIN}.adapters.library:install", calls=2, node=DRIVER.name),
        _start("MPS is started", f"{_MPS}.start", node=MPS.name),
        _start("MPS's daemon is waited for", f"{_MPS}._until_running", node=MPS.name),
        _start("MPS's server gets the devices", f"{_MPS}.devices", node=MPS.name),
        _start("a session serves with MPS", f"{_PLUGIN}.serve.service:Service.start", node=MPS.name),
        _start("MPS gets a command at the start", f"{_MPS}._run", calls=4, node=MPS.name),
        Point("a device is closed to strangers", f"{_PLUGIN}.serve.namespaces:set_compute_mode", node=MPS.name),
        Point("a namespace is made", f"{_MPS}.keep", node=MPS.name),
        Point("a namespace gets its percentage", f"{_MPS}._limit", node=MPS.name),
        Point("a namespace is tried", f"{_MPS}.is_serving", node=MPS.name),
        Point("a namespace is deleted", f"{_MPS}.delete", node=MPS.name),
        Point("clients of MPS are counted", f"{_MPS}.clients", node=MPS.name),
        Point("MPS gets a command", f"{_MPS}._run", calls=6, node=MPS.name),
    ),
    "monitor": (
        _start("the book of device time is taken", f"{_MONITOR}.adapters.book_file:BookFile._take"),
        _start("the book is read", f"{_MONITOR}.adapters.book_file:BookFile.read"),
        _start("the driver is read", f"{_MONITOR}.adapters.nvml:Driver._read"),
        _start("a round begins", f"{_MONITOR}.serve.rounds:Rounds.round", calls=2),
        Point("directories are listed", f"{_MONITOR}.adapters.directories:Directories.scan", calls=2),
        Point("a region is opened", f"{_MONITOR}.adapters.region_file:RegionFile.open"),
        Point("a region is mapped", f"{_MONITOR}.adapters.region_file:RegionFile._map"),
        Point("a region is read", f"{_MONITOR}.adapters.region_file:RegionFile.state", calls=2),
        Point("the processes of a region are added up", f"{_MONITOR}.adapters.region_file:RegionFile.sums"),
        Point("feedback is stored", f"{_MONITOR}.adapters.regions:Regions.store", calls=2),
        Point("a field of a region is written", f"{_MONITOR}.adapters.region_file:store_int32"),
        Point("a directory is moved away", f"{_MONITOR}.adapters.directories:set_aside"),
        Point("what was moved away is deleted", f"{_MONITOR}.adapters.directories:delete_some", calls=2),
        Point("the book is advanced", f"{_MONITOR}.serve.accounts:advance"),
        Point("the book is written", f"{_MONITOR}.adapters.book_file:BookFile.write"),
        Point("the book gets its name", "pathlib:Path.replace"),
        Point("processes are compared with grants", f"{_MONITOR}.serve.watchdog:Watchdog.look"),
        Point("metrics are collected", f"{_MONITOR}.serve.monitor:Monitor.observe"),
    ),
    "limit hook": tuple(
        Point(step, place, node=DRIVER.name)
        for step, place in (
            ("NVML is opened", "nvmlInit_v2:1:KILL"),
            ("NVML was opened", "nvmlInit_v2:1:KILL_AFTER"),
            ("the limit is set", "nvmlDeviceSetMemoryLimits_v1:1:KILL"),
            ("the limit was set", "nvmlDeviceSetMemoryLimits_v1:1:KILL_AFTER"),
        )
    ),
    "library": tuple(
        Point(step, place)
        for step, place in (
            ("the driver is initialised", "cuInit:1:KILL"),
            ("the driver was initialised", "cuInit:1:KILL_AFTER"),
            ("NVML lists devices for the region", "nvmlDeviceGetHandleByIndex_v2:1:KILL"),
            ("the first context is made", "cuDevicePrimaryCtxRetain:1:KILL"),
            ("the first context was made", "cuDevicePrimaryCtxRetain:1:KILL_AFTER"),
            ("memory is taken from the driver", "cuMemAlloc_v2:1:KILL"),
            ("memory was taken from the driver", "cuMemAlloc_v2:1:KILL_AFTER"),
        )
    ),
}
"""By the part that is killed. Containers have the `library`; the `limit hook` runs when one is created."""


LINES = 300_000
"""The last line before which a process is killed by chance; a start runs some 10 000."""
CHANCE = tuple(
    (part, Point("any line", f"{package},hamicommon", Moment.CHANCE, LINES, node))
    for part, package, nodes in (
        ("webhook", _WEBHOOK, (SHARED,)),
        ("scheduler", _SCHEDULER, (SHARED,)),
        ("plugin", _PLUGIN, (SHARED, LOCK, MIG.name, DRIVER.name, MPS.name)),
        ("monitor", _MONITOR, (SHARED,)),
    )
    for node in nodes
)
"""Kills that meet points that nobody named."""


def named(part: str, point: Point) -> str:
    """Return the name of *point* of *part*, which no other has."""
    where = f" on {point.node}" if part == "plugin" and point.node != SHARED else ""
    return f"{part}{where}: {point.step}"


def all_points() -> Iterator[tuple[str, Point]]:
    """Yield each point with its part."""
    for part, points in POINTS.items():
        for point in points:
            yield part, point

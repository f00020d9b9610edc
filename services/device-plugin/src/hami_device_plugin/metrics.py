"""
The plugin's metrics: their names and labels.

Counters live as long as the process, across sessions.
"""

from collections.abc import Collection, Mapping
from itertools import product

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from hamicommon.model import Device

CALLS = ("allocate", "pre_start")
RESULTS = ("ok", "error")
MIG_CHANGES = ("create", "destroy", "adopt", "forget", "clear", "repair", "switch-on")
MIG_RESULTS = ("ok", "refused", "error")
_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """Every metric of one process, in one registry."""

    def __init__(self) -> None:
        """Create the metrics; those with an alert start at zero with every label, so that a rate has a start."""
        self.registry = CollectorRegistry()
        self._shown_faults: set[tuple[str, str]] = set()
        self._shown_instances: set[tuple[str, str, str]] = set()
        self._make_metrics_of_calls()
        self._make_metrics_of_the_node()
        self._make_metrics_of_devices()
        self._make_metrics_of_mig()
        self._make_metrics_of_mps()

    def _make_metrics_of_calls(self) -> None:
        self.allocations = self._counter(
            "hami_device_plugin_allocations",
            "Kubelet calls that hand out devices, by call and result (ok, error).",
            call=CALLS,
            result=RESULTS,
        )
        self.pre_start_seconds = Histogram(
            "hami_device_plugin_pre_start_seconds",
            "Time PreStartContainer took.",
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.pod_confirmations = self._counter(
            "hami_device_plugin_pod_confirmations", "Pods marked as allocated, by result (ok, error).", result=()
        )
        self.starts_refused = self._counter(
            "hami_device_plugin_starts_refused",
            "Starts refused because a device does not have what their Pods were granted.",
        )
        self.edits = self._counter(
            "hami_device_plugin_cdi_edits",
            "Containers that started, by whether the runtime applied their CDI edits (applied, missing).",
            result=("applied", "missing"),
        )
        self.unserved = self._gauge(
            "hami_device_plugin_unserved_containers",
            "Containers that run with a grant and without its devices: the kubelet did not ask for them.",
        )

        self.claims = self._counter(
            "hami_device_plugin_claims",
            "ResourceClaims that the kubelet had prepared or unprepared, by call and result (ok, error).",
            call=("prepare", "unprepare"),
            result=RESULTS,
        )

    def _make_metrics_of_the_node(self) -> None:
        self.node_kind = self._gauge(
            "hami_device_plugin_node_kind",
            "1 for the kind of the Node: how devices reach the kubelet (plugin, dra).",
            "kind",
        )
        self.slice_writes = self._counter("hami_device_plugin_slice_writes", "Writes of the Node's ResourceSlice.")
        self.registrations = self._counter(
            "hami_device_plugin_registrations",
            "Attempts to register with the kubelet, by result (ok, error).",
            result=RESULTS,
        )
        self.restarts = self._counter(
            "hami_device_plugin_restarts",
            "New sessions inside the process, by cause "
            "(kubelet, devices, driver, enforcement, node, config, signal, error).",
            cause=(),
        )
        self.node_writes = self._counter("hami_device_plugin_node_writes", "Writes to the Node's annotations.")
        self.strategies = self._gauge(
            "hami_device_plugin_device_list_strategy",
            "1 for each way in which devices reach containers (envvar, volume-mounts, cdi-annotations, cdi-cri).",
            "strategy",
        )
        self.mode = self._gauge(
            "hami_device_plugin_allocation_mode",
            "1 for the mode in which allocations find their Pod (identity, lock).",
            "mode",
        )

        self.enforcement = self._gauge(
            "hami_device_plugin_memory_enforcement",
            "1 for who limits containers' memory (library: it alone, driver: by cgroup, mig: the instance's GPU).",
            "by",
        )
        self.memory_backend = self._gauge(
            "hami_device_plugin_memory_backend",
            "1 for what holds the driver's limits on memory (dmem: the kernel, misc: the driver's own accounting).",
            "backend",
        )
        self.limits_restored = self._counter(
            "hami_device_plugin_memory_limits_restored",
            "Limits of running containers that the driver had lost, by whether it took them again (ok, error).",
            result=RESULTS,
        )
        self.compute_enforcement = self._gauge(
            "hami_device_plugin_compute_enforcement",
            "1 for who limits containers' compute (library, mps). Only where the settings name MPS.",
            "by",
        )

    def _make_metrics_of_devices(self) -> None:
        self.devices = self._gauge(
            "hami_device_plugin_devices", "Devices offered, by health (healthy, unhealthy).", "health"
        )
        for health in ("healthy", "unhealthy"):
            self.devices.labels(health)
        self.driver_available = self._gauge(
            "hami_device_plugin_driver_available", "1 while NVML is open, 0 while the driver is missing or let go."
        )
        self._faults = self._gauge(
            "hami_device_plugin_device_faults",
            "1 for each fault of a device (lost, unreadable, silent, reset-required, xid, passing-xid, ecc, nvlink).",
            "device_uuid",
            "cause",
        )

    def _make_metrics_of_mig(self) -> None:
        self._instances = self._gauge(
            "hami_device_plugin_mig_instances",
            "MIG instances in mode mig, by state: places offered, and instances that are creating, live or destroying.",
            "device_uuid",
            "profile",
            "state",
        )
        self.mig_changes = self._counter(
            "hami_device_plugin_mig_changes",
            "Changes of MIG instances (create, destroy, adopt, forget, clear, repair) and of the mode (switch-on), by "
            "result (ok, refused, error).",
            change=MIG_CHANGES,
            result=MIG_RESULTS,
        )

    def _make_metrics_of_mps(self) -> None:
        container = ("namespace", "pod", "container")
        self._mps_percent = self._gauge(
            "hami_device_plugin_mps_percent",
            "Percentage of a device's multiprocessors in the namespace of MPS of each container that has one.",
            *container,
        )
        self._mps_clients = self._gauge(
            "hami_device_plugin_mps_clients",
            "Processes that use devices by a container's namespace of MPS.",
            *container,
        )
        self.mps_restarts = self._counter(
            "hami_device_plugin_mps_restarts", "Starts of MPS's daemon while the plugin served."
        )
        self.namespaces_restored = self._counter(
            "hami_device_plugin_mps_namespaces_restored", "Namespaces of running containers that MPS had lost."
        )

    def _counter(self, name: str, text: str, **labels: Collection[str]) -> Counter:
        """Return a counter that starts at zero for every combination of the values of its *labels*."""
        made = Counter(name, text, tuple(labels), registry=self.registry)
        for values in product(*labels.values()) if labels else ():
            made.labels(*values)
        return made

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def show_devices(self, devices: Collection[Device]) -> None:
        """Show how many of the offered *devices* are healthy."""
        healthy = sum(device.healthy for device in devices)
        self.devices.labels("healthy").set(healthy)
        self.devices.labels("unhealthy").set(len(devices) - healthy)

    def show_mig_instances(self, counts: Mapping[tuple[str, str, str], int]) -> None:
        """Show how many MIG instances there are by GPU, profile and state, and no others."""
        for labels in self._shown_instances - counts.keys():
            self._instances.remove(*labels)
        for labels, count in counts.items():
            self._instances.labels(*labels).set(count)
        self._shown_instances = set(counts)

    def show_namespaces(self, found: Mapping[tuple[str, str, str], tuple[int, int]]) -> None:
        """Show percentage and number of clients of each namespace, by its container, and of no others."""
        self._mps_percent.clear()
        self._mps_clients.clear()
        for labels, (percent, clients) in found.items():
            self._mps_percent.labels(*labels).set(percent)
            self._mps_clients.labels(*labels).set(clients)

    def show_faults(self, uuid: str, causes: Collection[str]) -> None:
        """Show that the device *uuid* has the faults *causes*, and no others."""
        for known, cause in [labels for labels in self._shown_faults if labels[0] == uuid]:
            if cause not in causes:
                self._faults.remove(known, cause)
                self._shown_faults.discard((known, cause))
        for cause in causes:
            self._faults.labels(uuid, cause).set(1)
            self._shown_faults.add((uuid, cause))

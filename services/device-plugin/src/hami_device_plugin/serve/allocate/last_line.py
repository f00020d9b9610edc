"""
Refuse a start that would put a device above what it has.

Owns which Pods have started, and how a refusal is told. A container that restarts belongs to a Pod that has started, so
it is never refused.
Neighbours: `capacity` decides, `identity` and `lock` ask before they answer.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from hami_device_plugin.adapters.cdi_files import spec_files
from hami_device_plugin.adapters.claim_records import ClaimRecords
from hami_device_plugin.decide.allocate.capacity import CapacityError, check_capacity
from hami_device_plugin.decide.allocate.cdi.spec import unqualified
from hami_device_plugin.decide.allocate.owner import Allocated
from hami_device_plugin.serve.allocate.kubelet_records import KubeletRecords
from hami_device_plugin.serve.context import Context
from hamicommon.model import Device
from hamicommon.pod.reading import Pod

EVENT = "DeviceAboveCapacity"


class LastLine:
    """The check of one session."""

    def __init__(self, context: Context, records: KubeletRecords) -> None:
        """Count the Pods of the Node; the specs there say which were prepared by identity."""
        self._context = context
        self._records = records
        self._claims = ClaimRecords.of_node(context.config.vgpu_directory)
        self._admitted: set[str] = set()
        """UIDs of Pods that were let start."""
        self._told: set[str] = set()
        """UIDs of Pods whose refusal has an Event."""

    def check(self, pod: Pod, entries: Sequence[Allocated], devices: Mapping[str, Device]) -> None:
        """
        Let *pod* start on *devices*, by UUID; *entries* are the kubelet's checkpoint, as far as it can be read.

        Raises:
            CapacityError: a device has not what the Pod was granted of it.
        """
        pods = self._context.view.pods
        started = self._started(entries)
        if pod.uid not in started:
            others = [other for uid, other in pods.items() if uid in started and not other.has_ended]
            try:
                prepared = self._claims.read().values()
                check_capacity(pod, others, devices, self._context.config.node_name, self._context.vendor, prepared)
            except CapacityError as error:
                self._tell(pod, str(error))
                raise
        self._admitted.intersection_update(pods)
        self._admitted.add(pod.uid)

    async def check_unseen(self, pod: Pod, devices: Mapping[str, Device]) -> None:
        """
        Do the same for a Pod that the watch may not have shown yet.

        Ends of other Pods that the scheduler knew of come before this Pod in the watch.
        """
        await self._context.view.wait_seen(pod.uid)
        self.check(pod, self._records.known() or (), devices)

    def _started(self, entries: Sequence[Allocated]) -> set[str]:
        """
        Return the UIDs of Pods that have started, or were given all that they need for it.

        Under the lock Allocate gives it, and by identity PreStartContainer does, which leaves a spec.
        """
        by_identity = {entry.pod_uid for entry in entries if any(map(unqualified, entry.cdi_devices))}
        served = {entry.pod_uid for entry in entries if entry.resource == self._context.config.resource} - by_identity
        running = {
            uid
            for uid, pod in self._context.view.pods.items()
            if any(found.started_at and found.asks(self._context.vendor.key) for found in pod.containers)
        }
        specs = spec_files(Path(self._context.config.cdi_root))
        return self._admitted | served | running | {found.pod_uid for found in specs}

    def _tell(self, pod: Pod, message: str) -> None:
        self._context.metrics.starts_refused.inc()
        self._told.intersection_update(self._context.view.pods)
        if pod.uid not in self._told:
            self._told.add(pod.uid)
            self._context.view.report_pod(pod, EVENT, message)

"""
Connect the MIG instances of a Node to the driver, the journal, the API server and the kubelet's checkpoint.

Neighbours: `instances` manages them, `session` runs it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from hami_device_plugin.adapters.checkpoint import FILE_NAME, read_checkpoint
from hami_device_plugin.adapters.holders import driver_holders
from hami_device_plugin.adapters.kube import NodeKube
from hami_device_plugin.adapters.mig_journal import JournalFile
from hami_device_plugin.adapters.nvml.mig import MigNvml
from hami_device_plugin.config.settings import Config
from hami_device_plugin.metrics import Metrics
from hami_device_plugin.serve.mig.instances import MigAccess, MigInstances
from hami_device_plugin.serve.mig.reports import MigReports
from hamicommon.runtime.host.nvml import Nvml
from hamicommon.vendor import Vendor


@contextmanager
def mig_instances(
    config: Config, nvml: Nvml, view: NodeKube, vendor: Vendor, metrics: Metrics
) -> Iterator[MigInstances]:
    """
    Hold the Node's journal for a block, and yield its instances.

    Raises:
        JournalError: another process holds it, or it cannot be read.
    """
    journal = JournalFile(config.vgpu_directory)
    checkpoint = config.plugin_directory / FILE_NAME
    sharing = config.sharing
    reports = MigReports(metrics, view.report)
    try:
        yield MigInstances(
            MigNvml(nvml),
            journal,
            MigAccess(
                pods=lambda: list(view.pods.values()),
                has_ended=lambda owner: view.has_ended(owner.uid, owner.namespace, owner.name),
                annotate=view.change_mig_allocations,
                # A kubelet writes its checkpoint when it first allocates a device.
                allocated=lambda: read_checkpoint(checkpoint) if checkpoint.exists() else (),
                announce=view.announce_mig_change,
                clients=lambda: ", ".join(driver_holders()),
            ),
            reports,
            rules=config.mig_rules,
            allocated_key=vendor.allocated_key,
            is_excluded=lambda gpu: gpu.uuid in sharing.excluded_uuids or gpu.index in sharing.excluded_indices,
        )
    finally:
        reports.hide()
        journal.close()

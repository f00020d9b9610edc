"""
Decide how a GPU becomes ready for mode `mig`: switch MIG on, remove leftovers of an idle GPU, or say why it cannot be.

HAMi switches MIG on and removes every instance of a GPU that no living Pod names and no process uses. Here a GPU is
idle only if, besides, no Pod has a share of it and the kubelet knows no container with one of its instances.
Neighbours: `serve.mig` acts, `offer` says what a ready GPU offers.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device-plugin/nvidiadevice/nvinternal/plugin/mig_startup.go
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from hami_device_plugin.decide.allocate.owner import Allocated
from hami_device_plugin.decide.mig.claims import Claims
from hami_device_plugin.decide.mig.geometry import Gpu, Instance, MigMode
from hami_device_plugin.decide.mig.journal import Journal
from hami_device_plugin.decide.mig.offer import rule_for
from hami_device_plugin.decide.mig.repair import UNREADABLE_CHECKPOINT, foreign_instances
from hamicommon.vendors.nvidia import MigProfileRule


@dataclass(frozen=True, slots=True)
class Preparation:
    """What to do with one GPU."""

    problem: str | None = None
    """Why it is not offered; then nothing is done to it."""
    switch_on: bool = False
    clear: tuple[Instance, ...] = ()
    """Leftover instances to destroy."""


def preparation(
    gpu: Gpu,
    rules: Sequence[MigProfileRule],
    journal: Journal,
    claims: Claims,
    allocated: Collection[str] | None,
) -> Preparation:
    """
    Return how *gpu* becomes ready.

    *allocated* are the device IDs of `other_devices`; None if the kubelet's checkpoint cannot be read.
    """
    problem = _problem(gpu, rules)
    if problem:
        return Preparation(problem)
    in_use = _others(gpu, claims, allocated)
    if gpu.mode is not MigMode.ON:
        waits = f"MIG is {gpu.mode.value}, and is switched on once the GPU is idle: {in_use}"
        return Preparation(waits) if in_use else Preparation(switch_on=True)
    leftovers = foreign_instances(gpu, journal)
    return Preparation(clear=() if in_use or _has_pods(gpu, journal, claims) else leftovers)


def other_devices(entries: Iterable[Allocated], claims: Claims) -> frozenset[str]:
    """Return the device IDs in the kubelet's checkpoint *entries* that living Pods have without HAMi's shares."""
    others = claims.owner_uids - claims.granted_uids
    return frozenset(device for entry in entries if entry.pod_uid in others for device in entry.replicas)


def _problem(gpu: Gpu, rules: Sequence[MigProfileRule]) -> str | None:
    if gpu.mode is MigMode.UNSUPPORTED:
        return "it has no MIG; use operatingmode hami-core on this Node, or exclude it with filterdevices"
    if rule_for(gpu.name, rules) is None:
        return "no rule of nvidia.migProfileAllowlist names this model; add its profiles there"
    if gpu.mode is MigMode.TURNING_OFF:
        return (
            f"MIG is switched off after a reset; run nvidia-smi -i {gpu.index} -mig 1 to keep it on, or use "
            "operatingmode hami-core"
        )
    return None


def _has_pods(gpu: Gpu, journal: Journal, claims: Claims) -> bool:
    """Return whether Pods were promised instances of *gpu*, or have them."""
    return gpu.uuid in claims.users or any(entry.gpu_uuid == gpu.uuid for entry in journal)


def _others(gpu: Gpu, claims: Claims, allocated: Collection[str] | None) -> str | None:
    """Return who uses *gpu* besides the Pods with instances; None if it is idle."""
    if gpu.uuid in claims.unclear:
        return claims.unclear[gpu.uuid]
    if gpu.is_busy:
        return "processes use it"
    if allocated is None:
        return UNREADABLE_CHECKPOINT
    uuids = {gpu.uuid, *(found.mig_uuid for found in gpu.instances if found.mig_uuid)}
    given = sorted(device for device in allocated if any(device.startswith(uuid) for uuid in uuids))
    return f"the kubelet gave {given[0]} to a container" if given else None

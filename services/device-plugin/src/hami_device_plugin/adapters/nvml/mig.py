"""
Read, create and destroy MIG instances, and find their device files.

The driver shows the device files in /proc, which is the same in every container.
Must never choose an instance or a placement: `decide.mig` does.
Source: https://docs.nvidia.com/deploy/nvml-api/group__nvmlMultiInstanceGPU.html,
https://docs.nvidia.com/datacenter/tesla/mig-user-guide/ ("Device Nodes and Capabilities")
"""

import asyncio
import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pynvml

from hami_device_plugin.adapters.nvml.devices import UNSUPPORTED
from hami_device_plugin.adapters.nvml.driver_clients import driver_clients
from hami_device_plugin.decide.allocate.allocation import GrantPolicy
from hami_device_plugin.decide.mig.geometry import Gpu, GpuProfile, Instance, MigMode
from hami_device_plugin.decide.mig.grant import (
    Address,
    CapabilityError,
    GrantedInstance,
    capability_files,
    decode_minors,
    needs_address,
)
from hami_device_plugin.decide.mig.static import MigDevice, profile_name
from hamicommon.model import MigPlacement
from hamicommon.runtime.host.nvml import OPEN_SECONDS, Nvml, text

T = TypeVar("T")

_PLAIN_PROFILES: Mapping[int, tuple[int, int]] = {
    1: (pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE, pynvml.NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE),
    2: (pynvml.NVML_GPU_INSTANCE_PROFILE_2_SLICE, pynvml.NVML_COMPUTE_INSTANCE_PROFILE_2_SLICE),
    3: (pynvml.NVML_GPU_INSTANCE_PROFILE_3_SLICE, pynvml.NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE),
    4: (pynvml.NVML_GPU_INSTANCE_PROFILE_4_SLICE, pynvml.NVML_COMPUTE_INSTANCE_PROFILE_4_SLICE),
    6: (pynvml.NVML_GPU_INSTANCE_PROFILE_6_SLICE, pynvml.NVML_COMPUTE_INSTANCE_PROFILE_6_SLICE),
    7: (pynvml.NVML_GPU_INSTANCE_PROFILE_7_SLICE, pynvml.NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE),
    8: (pynvml.NVML_GPU_INSTANCE_PROFILE_8_SLICE, pynvml.NVML_COMPUTE_INSTANCE_PROFILE_8_SLICE),
}
"""Number of slices to the profiles without extra engines, of the GPU instance and of its only compute instance."""
_SUFFIXES: Mapping[int, str] = {
    pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1: "+me",
    pynvml.NVML_GPU_INSTANCE_PROFILE_2_SLICE_REV1: "+me",
    pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME: "+me.all",
    pynvml.NVML_GPU_INSTANCE_PROFILE_2_SLICE_ALL_ME: "+me.all",
    pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE_NO_ME: "-me",
    pynvml.NVML_GPU_INSTANCE_PROFILE_2_SLICE_NO_ME: "-me",
    pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE_GFX: "+gfx",
    pynvml.NVML_GPU_INSTANCE_PROFILE_2_SLICE_GFX: "+gfx",
    pynvml.NVML_GPU_INSTANCE_PROFILE_4_SLICE_GFX: "+gfx",
}
"""What the name of a profile ends with, for those with other engines."""
_SHARED = pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
CREATE_SECONDS = 20.0
"""PreStartContainer may take 30 s."""
_ABSENT = (pynvml.NVMLError_NotSupported, pynvml.NVMLError_InvalidArgument, pynvml.NVMLError_NotFound)
"""What NVML answers for a profile or an index that a GPU does not have."""
MINORS = Path("/proc/driver/nvidia-caps/mig-minors")
DEVICES = Path("/proc/devices")
_CAPABILITIES = "nvidia-caps"


class MigNvml:
    """The MIG functions of NVML; every method raises `NvmlError` if NVML does."""

    def __init__(self, nvml: Nvml) -> None:
        """Use *nvml*, which must be open."""
        self._nvml = nvml

    async def read_gpus(self) -> tuple[Gpu, ...]:
        """Return every GPU that answers, by index."""
        return await self._nvml.call(_read_gpus)

    async def read_devices(self) -> tuple[MigDevice, ...]:
        """Return every MIG device of the GPUs that answer, by index of GPU and instance."""
        return await self._nvml.call(_read_mig_devices)

    async def address(self, mig_uuid: str) -> Address:
        """Return where an instance is."""
        return await self._nvml.call(_address, mig_uuid)

    async def granted(self, uuids: Sequence[str], policy: GrantPolicy) -> tuple[GrantedInstance, ...]:
        """
        Return the instances *uuids* with what *policy* gives of them.

        Raises:
            CapabilityError: the driver does not list an instance's device files.
        """
        if not needs_address(policy):
            return tuple(GrantedInstance(uuid) for uuid in uuids)
        return tuple([await self._granted(uuid, policy) for uuid in uuids])

    async def _granted(self, uuid: str, policy: GrantPolicy) -> GrantedInstance:
        address = await self.address(uuid)
        if policy.minors is None:
            return GrantedInstance(uuid, str(address))
        return GrantedInstance(uuid, str(address), (f"/dev/nvidia{address.gpu_minor}", *await _capabilities(address)))

    async def capabilities(self, mig_uuid: str) -> dict[str, int]:
        """
        Return the minor number of each capability of an instance, by the path of its device file.

        Raises:
            CapabilityError: the driver does not list them.
        """
        return await _capabilities(await self.address(mig_uuid))

    def clients(self) -> str:
        """Return the other processes that have the driver open, as far as they are seen; empty if none is."""
        return ", ".join(driver_clients())

    async def switch_on(self, gpu_uuid: str) -> MigMode:
        """Switch MIG on, and return the mode of the GPU afterwards: it may wait for a reset."""
        return await self._nvml.call(_switch_on, gpu_uuid, seconds=OPEN_SECONDS)

    async def create(self, gpu_uuid: str, profile: GpuProfile, placement: MigPlacement) -> Instance:
        """
        Create a GPU instance of *profile* at *placement* with one compute instance, and return it.

        After an error in between, the GPU instance is destroyed again.
        """
        return await self._nvml.call(_create, gpu_uuid, profile, placement, seconds=CREATE_SECONDS)

    async def destroy(self, gpu_uuid: str, gpu_instance_id: int) -> None:
        """Destroy a GPU instance and its compute instances; it may be gone already."""
        await self._nvml.call(_destroy_by_id, gpu_uuid, gpu_instance_id, seconds=CREATE_SECONDS)


def read_minors() -> dict[str, int]:
    """
    Return the minor number of each capability.

    Raises:
        CapabilityError: the driver does not list them.
    """
    try:
        return decode_minors(MINORS.read_text(encoding="ascii", errors="replace"))
    except OSError as error:
        raise CapabilityError(f"{MINORS} cannot be read: {error.strerror}") from error


def read_major() -> int | None:
    """Return the major number of the capabilities' device files; None if the kernel has none."""
    try:
        rows = [line.split() for line in DEVICES.read_text(encoding="ascii", errors="replace").splitlines()]
    except OSError:
        return None
    return next((int(row[0]) for row in rows if len(row) == 2 and row[1] == _CAPABILITIES and row[0].isdecimal()), None)


async def _capabilities(address: Address) -> dict[str, int]:
    return capability_files(address, await asyncio.to_thread(read_minors))


def _read_gpus() -> tuple[Gpu, ...]:
    gpus = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        with suppress(pynvml.NVMLError_GpuIsLost, pynvml.NVMLError_NotFound):
            gpus.append(_gpu(pynvml.nvmlDeviceGetHandleByIndex(index), index))
    return tuple(gpus)


def _address(mig_uuid: str) -> Address:
    device = pynvml.nvmlDeviceGetHandleByUUID(mig_uuid)
    gpu = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device)
    return Address(
        gpu_index=pynvml.nvmlDeviceGetIndex(gpu),
        gpu_minor=pynvml.nvmlDeviceGetMinorNumber(gpu),
        index=pynvml.nvmlDeviceGetIndex(device),
        gpu_instance_id=pynvml.nvmlDeviceGetGpuInstanceId(device),
        compute_instance_id=pynvml.nvmlDeviceGetComputeInstanceId(device),
    )


def _switch_on(uuid: str) -> MigMode:
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    status = pynvml.nvmlDeviceSetMigMode(handle, pynvml.NVML_DEVICE_MIG_ENABLE)
    mode = _mode(pynvml.nvmlDeviceGetHandleByUUID(uuid))
    if mode is MigMode.OFF:
        raise pynvml.NVMLError(status or pynvml.NVML_ERROR_UNKNOWN)
    return mode


def _create(gpu_uuid: str, profile: GpuProfile, placement: MigPlacement) -> Instance:
    handle = pynvml.nvmlDeviceGetHandleByUUID(gpu_uuid)
    place = pynvml.c_nvmlGpuInstancePlacement_t(placement.start, placement.size)
    created = pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(handle, profile.id, ctypes.byref(place))
    try:
        _create_compute(created, profile.slices)
        number = pynvml.nvmlGpuInstanceGetInfo(created).id
        found = next((found for found in _instances(handle) if found.id == number), None)
        if found is None or found.mig_uuid is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
    except pynvml.NVMLError:
        with suppress(pynvml.NVMLError):
            _destroy(created)
        raise
    return found


def _destroy_by_id(gpu_uuid: str, gpu_instance_id: int) -> None:
    handle = pynvml.nvmlDeviceGetHandleByUUID(gpu_uuid)
    try:
        found = pynvml.nvmlDeviceGetGpuInstanceById(handle, gpu_instance_id)
    except pynvml.NVMLError_NotFound:
        return
    _destroy(found)


def _read_mig_devices() -> tuple[MigDevice, ...]:
    devices: list[MigDevice] = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        with suppress(pynvml.NVMLError_GpuIsLost, pynvml.NVMLError_NotFound):
            devices += _mig_devices(pynvml.nvmlDeviceGetHandleByIndex(index), index)
    return tuple(devices)


def _gpu(handle: Any, index: int) -> Gpu:
    mode = _mode(handle)
    is_cut = mode in (MigMode.ON, MigMode.TURNING_OFF)
    instances = _instances(handle) if is_cut else ()
    return Gpu(
        uuid=text(pynvml.nvmlDeviceGetUUID(handle)),
        index=index,
        name=text(pynvml.nvmlDeviceGetName(handle)),
        mode=mode,
        profiles=tuple(_profiles(handle)) if mode is not MigMode.UNSUPPORTED else (),
        instances=instances,
        is_busy=any(found.is_busy for found in instances) if is_cut else _is_busy(handle),
    )


def _mode(handle: Any) -> MigMode:
    try:
        current, pending = pynvml.nvmlDeviceGetMigMode(handle)
    except UNSUPPORTED:
        return MigMode.UNSUPPORTED
    if current:
        return MigMode.ON if pending else MigMode.TURNING_OFF
    return MigMode.TURNING_ON if pending else MigMode.OFF


def _profiles(handle: Any) -> Iterator[GpuProfile]:
    for slices, (number, _) in _PLAIN_PROFILES.items():
        info = _present(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, handle, number, 1)
        if info is not None:
            yield GpuProfile(
                id=info.id,
                slices=slices,
                memory_mib=int(info.memorySizeMB),
                multiprocessors=info.multiprocessorCount,
                instances_max=info.instanceCount,
                placements=_placements(handle, info.id),
            )


def _placements(handle: Any, profile_id: int) -> tuple[MigPlacement, ...]:
    count = ctypes.c_uint(0)
    read = pynvml.nvmlDeviceGetGpuInstancePossiblePlacements
    read(handle, profile_id, None, ctypes.byref(count))
    room = (pynvml.c_nvmlGpuInstancePlacement_t * max(count.value, 1))()
    read(handle, profile_id, room, ctypes.byref(count))
    return tuple(MigPlacement(place.start, place.size) for place in room[: count.value])


def _instances(handle: Any) -> tuple[Instance, ...]:
    """Return the GPU instances of every profile, by ID."""
    devices = {(gi, ci): device for device, gi, ci in _mig_handles(handle)}
    found: dict[int, Instance] = {}
    for number in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        info = _present(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, handle, number, 1)
        if info is None:
            continue
        listed = _listed(pynvml.nvmlDeviceGetGpuInstances, handle, info.id, pynvml.c_nvmlGpuInstance_t, info)
        for instance in listed:
            read = _instance(instance, devices)
            found[read.id] = read
    return tuple(found[number] for number in sorted(found))


def _instance(instance: Any, devices: Mapping[tuple[int, int], Any]) -> Instance:
    info = pynvml.nvmlGpuInstanceGetInfo(instance)
    computes = tuple(sorted(pynvml.nvmlComputeInstanceGetInfo(one).id for one in _computes(instance)))
    handles = [devices[info.id, number] for number in computes if (info.id, number) in devices]
    return Instance(
        id=info.id,
        profile_id=info.profileId,
        placement=MigPlacement(info.placement.start, info.placement.size),
        compute_ids=computes,
        mig_uuid=text(pynvml.nvmlDeviceGetUUID(handles[0])) if len(computes) == len(handles) == 1 else None,
        is_busy=len(handles) < len(computes) or any(map(_is_busy, handles)),
    )


def _computes(instance: Any) -> list[Any]:
    found: list[Any] = []
    for number in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        info = _present(pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo, instance, number, _SHARED, 1)
        if info is not None:
            found += _listed(
                pynvml.nvmlGpuInstanceGetComputeInstances, instance, info.id, pynvml.c_nvmlComputeInstance_t, info
            )
    return found


def _listed(read: Callable[..., Any], parent: Any, profile_id: int, kind: Any, info: Any) -> list[Any]:
    """Return the instances of one profile that *read* lists; *info* says how many there can be."""
    room = (kind * max(info.instanceCount, 1))()
    count = ctypes.c_uint(len(room))
    if _present(read, parent, profile_id, room, ctypes.byref(count)) is None:
        return []
    return list(room[: count.value])


def _create_compute(instance: Any, slices: int) -> None:
    number = _PLAIN_PROFILES[slices][1]
    info = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, number, _SHARED, 1)
    pynvml.nvmlGpuInstanceCreateComputeInstance(instance, info.id)


def _destroy(instance: Any) -> None:
    for compute in _computes(instance):
        pynvml.nvmlComputeInstanceDestroy(compute)
    pynvml.nvmlGpuInstanceDestroy(instance)


def _mig_handles(handle: Any) -> Iterator[tuple[Any, int, int]]:
    """Yield the handle of each MIG device of a GPU, and the IDs of its GPU instance and compute instance."""
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        device = _present(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
        if device is not None:
            yield device, pynvml.nvmlDeviceGetGpuInstanceId(device), pynvml.nvmlDeviceGetComputeInstanceId(device)


def _mig_devices(handle: Any, index: int) -> Iterator[MigDevice]:
    if _mode(handle) not in (MigMode.ON, MigMode.TURNING_OFF):
        return
    suffixes = {
        info.id: suffix
        for number, suffix in _SUFFIXES.items()
        if (info := _present(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, handle, number, 1))
    }
    profiles = {found.id: found.profile_id for found in _instances(handle)}
    total_bytes = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    for device, gi, _ in _mig_handles(handle):
        parts = pynvml.nvmlDeviceGetAttributes_v2(device)
        yield MigDevice(
            uuid=text(pynvml.nvmlDeviceGetUUID(device)),
            gpu_uuid=text(pynvml.nvmlDeviceGetUUID(handle)),
            gpu_index=index,
            name=text(pynvml.nvmlDeviceGetName(device)),
            profile=profile_name(
                slices=parts.gpuInstanceSliceCount,
                compute_slices=parts.computeInstanceSliceCount,
                memory_mib=int(parts.memorySizeMB),
                total_bytes=total_bytes,
                suffix=suffixes.get(profiles.get(gi, -1), ""),
            ),
            is_whole=parts.gpuInstanceSliceCount == parts.computeInstanceSliceCount,
            memory_mib=int(parts.memorySizeMB),
        )


def _is_busy(handle: Any) -> bool:
    """Return whether a process uses the device; also True if the driver does not say."""
    try:
        return bool(
            pynvml.nvmlDeviceGetComputeRunningProcesses(handle) or pynvml.nvmlDeviceGetGraphicsRunningProcesses(handle)
        )
    except pynvml.NVMLError:
        return True


def _present(read: Callable[..., T], *arguments: Any) -> T | None:
    """Return what *read* returns; None if the GPU has no such profile or index."""
    try:
        return read(*arguments)
    except _ABSENT:
        return None

"""
Decide what a container gets with its shares: environment, mounts and device nodes, under HAMi's names.

Knows neither Pods nor the kubelet. Which files exist arrives as an argument.
Neighbours: `identity` and `lock` find the shares, `cdi` and `kubelet` carry the grant to the container.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device-plugin/nvidiadevice/nvinternal/plugin/server.go
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hami_device_plugin.decide.inventory import is_instance
from hami_device_plugin.decide.probe.strategy import ENVVAR, VOLUME_MOUNTS
from hamicommon.dra.grants import CLAIMS
from hamicommon.errors import HamiError
from hamicommon.model import Share
from hamicommon.pod.variables import CORE_POLICY
from hamicommon.wire.limits_file import DEVICES_MAX, DeviceLimits, LimitsFile

LOCK_DIRECTORY = "/tmp/vgpulock"
"""Directory of the lock file of HAMi's library: always in the container, by default also on the host."""
PRELOAD_FILE = "/etc/ld.so.preload"
CONTAINERS = "containers"
"""The folder of the directories of containers, below `<hook path>/vgpu`."""
LIMITS = "limits"
"""
The file with what the container was granted, and the folder beside the library in which the container sees it: a
process may have lost its environment.
"""
LIMITS_FOLDER = ".limits"
"""The folder of limits files of containers that can write their own directory; the dot: no container's."""
VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
DEVICE_UUIDS = "HAMI_DEVICE_UUIDS"
"""
The device of each `CUDA_DEVICE_MEMORY_LIMIT_<i>`, for our library. NVIDIA's CDI modes replace VISIBLE_DEVICES, which
HAMi's library reads.
"""
NO_CORE_LIMIT = "disable"
"""The variable of the library by which an operator or a Pod's author switches the limit on compute off, and how."""
VOLUME_ROOT = "/var/run/nvidia-container-devices"
CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")

NO_DEVICES = "void"
"""The value of VISIBLE_DEVICES for which NVIDIA's runtime adds nothing."""


class SeveralReplicasError(HamiError):
    """A container got several replicas of shared devices where it may have only one."""


@dataclass(frozen=True, slots=True)
class Mount:
    """One path of the host inside the container."""

    container_path: str
    host_path: str
    is_read_only: bool


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """One device file inside the container."""

    container_path: str
    host_path: str
    permissions: str = "rw"


@dataclass(frozen=True, slots=True)
class Grant:
    """Everything one container gets."""

    env: dict[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    cdi_devices: tuple[str, ...] = ()
    """Qualified names of CDI devices, whose specs have the rest."""
    annotations: dict[str, str] = field(default_factory=dict)
    """Annotations of the container for its runtime."""
    private_directories: tuple[str, ...] = ()
    """Paths in the container of small file systems in memory, of this container alone. Only CDI specs have them."""
    limits: LimitsFile | None = None
    """What its limits file says; None if it has none."""
    limits_directory: str = ""
    """The host directory of that file."""


@dataclass(frozen=True, slots=True)
class GrantPolicy:
    """What every container of this Node gets."""

    hook_path: str
    """Root on the host and in the container; the files are below `<hook_path>/vgpu`."""
    lock_directory: str = LOCK_DIRECTORY
    """Host directory that containers with HAMi's library see as LOCK_DIRECTORY."""
    list_strategies: tuple[str, ...] = (ENVVAR,)
    annotation_prefix: str = "cdi.k8s.io/"
    """Start of the annotation keys of CDI_ANNOTATIONS."""
    is_oversubscribed: bool = False
    """Whether device memory is scaled by more than 1."""
    lib_cuda_log_level: str = ""
    is_core_limit_disabled: bool = False
    gdrcopy: bool = False
    gds: bool = False
    mofed: bool = False
    imex_channels: tuple[int, ...] = ()
    indices: dict[str, int] | None = None
    """UUID to index; None lists devices by UUID."""
    minors: dict[str, int] | None = None
    """UUID to N of /dev/nvidiaN; None passes no device nodes."""
    dev_root: str = "/"
    control_nodes: tuple[str, ...] = ()
    """Those of CONTROL_NODES that exist here."""
    is_licensed: bool = False
    """`<hook_path>/vgpu/license` exists."""
    is_one_replica_at_most: bool = False
    """Whether a container with several replicas of shared devices is refused."""


@dataclass(frozen=True, slots=True)
class Library:
    """The library that a container preloads."""

    host_path: str
    is_hamis: bool = False
    """HAMi's own build, which locks a file in LOCK_DIRECTORY. Ours locks the region file only."""


@dataclass(frozen=True, slots=True)
class Container:
    """The container that a grant is for, or the request of a ResourceClaim, whose containers share one grant."""

    pod_uid: str
    """That of the claim for a request."""
    name: str
    is_control_disabled: bool = False
    """The user switched the library off with CUDA_DISABLE_CONTROL."""
    choices: Mapping[str, str] = field(default_factory=dict)
    """The variables of the library that the Pod's author sets and that count for every process."""
    is_request: bool = False
    """Whether it is the request of a claim."""


def check_count(replicas: Sequence[str], policy: GrantPolicy) -> None:
    """
    Refuse a container with several *replicas* if the policy allows one; a MIG instance is not shared.

    Raises:
        SeveralReplicasError: there are several.
    """
    if policy.is_one_replica_at_most and len(replicas) > 1 and not any(map(is_instance, replicas)):
        raise SeveralReplicasError(
            f"{len(replicas)} replicas of shared devices are asked for, and a container may have 1 here, because of "
            "sharing.timeSlicing.failRequestsGreaterThanOne"
        )


def node_environment(policy: GrantPolicy) -> dict[str, str]:
    """Return the variables that every container of this Node gets."""
    env = {}
    if policy.is_oversubscribed:
        env["CUDA_OVERSUBSCRIBE"] = "true"
    if policy.lib_cuda_log_level:
        env["LIBCUDA_LOG_LEVEL"] = policy.lib_cuda_log_level
    if policy.is_core_limit_disabled:
        env[CORE_POLICY] = NO_CORE_LIMIT
    return env | feature_environment(policy)


def feature_environment(policy: GrantPolicy) -> dict[str, str]:
    """Return those of them that are not for the library: the driver's features."""
    env = {}
    if ENVVAR in policy.list_strategies and policy.imex_channels:
        env["NVIDIA_IMEX_CHANNELS"] = ",".join(map(str, policy.imex_channels))
    features = {"NVIDIA_GDRCOPY": policy.gdrcopy, "NVIDIA_GDS": policy.gds, "NVIDIA_MOFED": policy.mofed}
    return env | {name: "enabled" for name, is_on in features.items() if is_on}


def share_environment(shares: Sequence[Share], policy: GrantPolicy, region: str) -> dict[str, str]:
    """
    Return the variables for *shares*: the visible devices, and the limits of each.

    *region* is the name of the region file without its ending. The first share's compute limit applies to all.
    """
    env = {f"CUDA_DEVICE_MEMORY_LIMIT_{i}": f"{share.memory_mib}m" for i, share in enumerate(shares)}
    env["CUDA_DEVICE_SM_LIMIT"] = str(shares[0].core_percent)
    env[DEVICE_UUIDS] = ",".join(map(device_uuid, shares))
    env["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = region_in_container(policy, region)
    return env | list_environment(_device_names(shares, policy), policy)


def list_environment(names: Sequence[str], policy: GrantPolicy) -> dict[str, str]:
    """
    Return the variable by which the NVIDIA runtime learns that the devices *names* are the container's.

    Unless a strategy lists the devices by that runtime, it is to add none.
    """
    if VOLUME_MOUNTS in policy.list_strategies:
        return {VISIBLE_DEVICES: VOLUME_ROOT}
    return {VISIBLE_DEVICES: ",".join(names) if ENVVAR in policy.list_strategies else NO_DEVICES}


def volume_mounts(names: Sequence[str], policy: GrantPolicy) -> tuple[Mount, ...]:
    """Return the mounts by which the NVIDIA runtime learns the same; none unless the policy lists devices by them."""
    if VOLUME_MOUNTS not in policy.list_strategies:
        return ()
    listed = [*names, *(f"imex/{channel}" for channel in policy.imex_channels)]
    return tuple(Mount(f"{VOLUME_ROOT}/{name}", "/dev/null", is_read_only=False) for name in listed)


def allocate(
    shares: Sequence[Share],
    container: Container,
    policy: GrantPolicy,
    *,
    library: Library,
    region: str,
    is_private: bool = False,
) -> Grant:
    """
    Return what *container* gets with *shares*, of which there is at least one.

    *region* is the name of the region file without its ending. If *is_private*, the container can write only this file
    of its directory on the host, in a directory in memory. Otherwise it gets the host's directory, as HAMi does it, and
    its limits file is in another one.
    """
    root, file = f"{policy.hook_path}/vgpu", _region_name(region)
    directory = host_directory(policy.hook_path, container)
    env = node_environment(policy) | share_environment(shares, policy, region)
    is_limited = not container.is_control_disabled and not library.is_hamis
    limits_directory = directory if is_private else shared_limits_directory(policy.hook_path, container)
    limits = _limits(shares, {**container.choices, **env}) if is_limited else None
    return Grant(
        env=env,
        mounts=(
            *volume_mounts(_device_names(shares, policy), policy),
            Mount(f"{root}/libvgpu.so", library.host_path, is_read_only=True),
            Mount(f"{root}/{file}", f"{directory}/{file}", is_read_only=False)
            if is_private
            else Mount(root, directory, is_read_only=False),
            *((Mount(f"{root}/{LIMITS}", limits_directory, is_read_only=True),) if limits else ()),
            *_shared_mounts(container, policy, library),
        ),
        device_nodes=device_nodes(_device_files(shares, policy), policy),
        private_directories=(root,) if is_private else (),
        limits=limits,
        limits_directory=limits_directory if limits else "",
    )


def device_nodes(files: Sequence[str], policy: GrantPolicy) -> tuple[DeviceNode, ...]:
    """
    Return the device nodes of a container whose devices have *files*, with those that every container gets.

    None unless the policy passes device nodes.
    """
    if policy.minors is None:
        return ()
    channels = [f"/dev/nvidia-caps-imex-channels/channel{channel}" for channel in policy.imex_channels]
    root = policy.dev_root.rstrip("/")
    paths = dict.fromkeys((*policy.control_nodes, *files, *channels))
    return tuple(DeviceNode(path, f"{root}{path}") for path in paths)


def without_library(shares: Sequence[Share], policy: GrantPolicy) -> Grant:
    """Return what a container gets with *shares* and no library: the devices, and no limit of the library."""
    names = _device_names(shares, policy)
    return Grant(
        env=feature_environment(policy) | list_environment(names, policy),
        mounts=volume_mounts(names, policy),
        device_nodes=device_nodes(_device_files(shares, policy), policy),
    )


def device_uuid(share: Share) -> str:
    """Return the UUID of the device of *share*."""
    return share.uuid.split("::", 1)[0]


def granted_uuids(shares: Sequence[Share]) -> tuple[str, ...]:
    """Return the UUID of each device of *shares*, once, in their order."""
    return tuple(dict.fromkeys(map(device_uuid, shares)))


def container_directory(hook_path: str, pod_uid: str, container: str) -> str:
    """Return the host directory of one container's region file; the monitor splits its name at the first `_`."""
    return f"{hook_path}/vgpu/{CONTAINERS}/{directory_name(pod_uid, container)}"


def host_directory(hook_path: str, container: Container) -> str:
    """Return the host directory of *container*; that of a request is where the monitor looks for no containers."""
    if not container.is_request:
        return container_directory(hook_path, container.pod_uid, container.name)
    return f"{hook_path}/vgpu/{CLAIMS}/{directory_name(container.pod_uid, container.name)}"


def shared_limits_directory(hook_path: str, container: Container) -> str:
    """Return the host directory of the limits file of a container that can write all of its own directory."""
    return f"{hook_path}/vgpu/{CONTAINERS}/{LIMITS_FOLDER}/{directory_name(container.pod_uid, container.name)}"


def directory_name(pod_uid: str, container: str) -> str:
    """Return the name of the host directory of one container."""
    return f"{pod_uid}_{container}"


def region_file(hook_path: str, container: Container, region: str) -> str:
    """Return the path on the host of the region file that *container* uses."""
    return f"{host_directory(hook_path, container)}/{_region_name(region)}"


def region_in_container(policy: GrantPolicy, region: str) -> str:
    """Return the path of the region file as its container sees it."""
    return f"{policy.hook_path}/vgpu/{_region_name(region)}"


def _limits(shares: Sequence[Share], env: Mapping[str, str]) -> LimitsFile | None:
    """
    Return what the limits file says for *shares* and the variables in *env* that the library reads.

    None for more devices than the library can limit.
    """
    devices: dict[str, DeviceLimits] = {}
    for share in shares:
        devices.setdefault(device_uuid(share), DeviceLimits(share.memory_mib << 20, share.core_percent or 100))
    variables = {name: value for name, value in env.items() if not name.startswith("NVIDIA_")}
    return LimitsFile(devices, variables) if len(devices) <= DEVICES_MAX else None


def _region_name(region: str) -> str:
    return f"{region}.cache"


def _device_names(shares: Sequence[Share], policy: GrantPolicy) -> list[str]:
    uuids = granted_uuids(shares)
    return (
        list(uuids)
        if policy.indices is None
        else [str(policy.indices[uuid]) for uuid in uuids if uuid in policy.indices]
    )


def _shared_mounts(container: Container, policy: GrantPolicy, library: Library) -> tuple[Mount, ...]:
    """Return the mounts of files that containers share."""
    root = f"{policy.hook_path}/vgpu"
    mounts = []
    if library.is_hamis:
        mounts.append(Mount(LOCK_DIRECTORY, policy.lock_directory, is_read_only=False))
    if not container.is_control_disabled:
        mounts.append(Mount(PRELOAD_FILE, f"{root}/ld.so.preload", is_read_only=True))
    if policy.is_licensed:
        mounts.append(Mount("/tmp/license", f"{root}/license", is_read_only=True))
        mounts.append(Mount("/usr/bin/vgpuvalidator", f"{root}/vgpuvalidator", is_read_only=True))
    return tuple(mounts)


def _device_files(shares: Sequence[Share], policy: GrantPolicy) -> list[str]:
    minors = policy.minors or {}
    uuids = dict.fromkeys(share.uuid for share in shares)
    return [f"/dev/nvidia{minors[uuid]}" for uuid in uuids if uuid in minors]

"""
The plugin's settings: HAMi's flags, a few more, and what the files say of this Node.

A field with a flag has its names, variables, key in the device config, default and help. `loader` fills in the others.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/cmd/device-plugin/nvidia/main.go
"""

from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from hami_device_plugin import __version__
from hami_device_plugin.config.ignored import IGNORED_FLAGS
from hami_device_plugin.config.named import LABEL, NAMED, SINGLE, STRATEGIES
from hami_device_plugin.decide.allocate.allocation import LOCK_DIRECTORY
from hami_device_plugin.decide.health.xids import HealthPolicy
from hami_device_plugin.decide.inventory import MIG, MPS, SharingPolicy
from hami_device_plugin.decide.mig import static
from hami_device_plugin.decide.probe import enforcement
from hami_device_plugin.decide.probe.mock import MockDevice
from hami_device_plugin.decide.probe.mode import AUTO, IDENTITY, LOCK
from hami_device_plugin.decide.probe.strategy import CDI_ANNOTATIONS, CDI_CRI, ENVVAR, LIST_STRATEGIES
from hami_device_plugin.decide.replicas import ids
from hami_device_plugin.decide.replicas.preference import ALIGNED, ANNOTATION, POLICIES
from hamicommon.config.device_config import DeviceConfig
from hamicommon.dra.names import KINDS, PLUGIN
from hamicommon.runtime.program import flags
from hamicommon.runtime.program.settings import ServiceConfig, parser_of, setting
from hamicommon.vendors.nvidia import MigProfileRule
from hamicommon.wire.version import WireVersion

AUTO_DISCOVERY = "auto"
DEFAULT_KUBELET_SOCKET = "/var/lib/kubelet/device-plugins/kubelet.sock"
NAME = "hami-device-plugin"

_setting = partial(setting, is_late=True)


def _words(choices: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """Return what reads a comma list of *choices*."""

    def read(text: str) -> tuple[str, ...]:
        words = tuple(word.strip() for word in text.split(",") if word.strip())
        wrong = [word for word in words if word not in choices]
        if wrong:
            raise ArgumentTypeError(f"{', '.join(map(repr, wrong))} is not one of {', '.join(choices)}")
        return words

    return read


def _one_of(choices: Iterable[str]) -> Callable[[str], str]:

    def read(text: str) -> str:
        if text not in choices:
            raise ArgumentTypeError(f"{text!r} is not one of {', '.join(choices)}")
        return text

    return read


def _imex_channels(text: str) -> tuple[int, ...]:
    channels = text.strip("[] ")
    if channels not in ("", "0"):
        raise ArgumentTypeError(f"{channels!r} is not empty or 0")
    return (0,) if channels else ()


def _folder(text: str) -> str:
    if text and not text.startswith("/"):
        raise ArgumentTypeError(f"{text!r} is not an absolute path")
    return text.rstrip("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ServiceConfig):
    """The plugin's settings."""

    config_file: str = _setting("--config-file", "", "device config, YAML; must be given", variable="CONFIG_FILE")
    node_config_file: str = _setting(
        "--node-config-file", "/config/config.json", "settings of single Nodes, JSON; may be missing"
    )
    named_folder: str = _setting(
        "--config-file-srcdir",
        "",
        "folder of named configs, of which a Node label chooses one; empty: none",
        variable="CONFIG_FILE_SRCDIR",
    )
    node_label: str = _setting("--node-label", LABEL, "Node label that names the config", variable="NODE_LABEL")
    default_config: str = _setting(
        "--default-config", "", "config of Nodes without the label", variable="DEFAULT_CONFIG"
    )
    fallback_strategies: tuple[str, ...] = _setting(
        "--fallback-strategies",
        f"{NAMED},{SINGLE}",
        f"how to find a config without label and default, in order: {', '.join(STRATEGIES)}",
        read=_words(STRATEGIES),
        variable="FALLBACK_STRATEGIES",
    )
    node_name: str = _setting("--node-name", "", "name of the Node this runs on", variable="NODE_NAME NodeName")
    node_kind: str = _setting(
        "--node-kind",
        PLUGIN,
        "how devices reach the kubelet: plugin (DevicePlugin API), dra (dynamic resource allocation: ResourceClaims)",
        read=_one_of(KINDS),
        variable="HAMI_NODE_KIND",
    )
    has_extended_resource: bool = _setting(
        "--dra-extended-resource",
        False,
        "on a Node of kind dra, serve Pods that ask for devices by resources: offer a token for each replica of each "
        "device, apart from the claimdevices of the Node; the webhook must have the flag too, and the scheduler --dra",
        variable="HAMI_DRA_EXTENDED_RESOURCE",
    )
    kubelet_root: str = _setting(
        "--kubelet-root",
        "/var/lib/kubelet",
        "the kubelet's directory, with plugins and plugins_registry; on Nodes of kind dra only",
        read=_folder,
        variable="HAMI_KUBELET_ROOT",
    )
    pod_uid: str = _setting(
        "--pod-uid",
        "",
        "UID of this plugin's Pod, for the names of its sockets on Nodes of kind dra; empty: always the same names",
        variable="POD_UID",
    )
    mig_strategy: str = _setting(
        "--mig-strategy",
        static.NONE,
        "MIG instances to offer: none (whole GPUs), single (of one size, as the usual resource), mixed (each size as "
        "nvidia.com/mig-<profile>); has no effect in operatingmode mig",
        read=_one_of(static.STRATEGIES),
        variable="MIG_STRATEGY",
        key="flags.migStrategy",
    )
    kubelet_socket: str = _setting(
        "--kubelet-socket",
        DEFAULT_KUBELET_SOCKET,
        "the kubelet's registration socket; empty: do not register",
        variable="KUBELET_SOCKET",
    )
    pod_resources_socket: str = _setting(
        "--pod-resources-socket",
        "/var/lib/kubelet/pod-resources/kubelet.sock",
        "the kubelet's PodResources socket",
        variable="POD_RESOURCES_SOCKET",
    )
    cdi_root: str = _setting(
        "--cdi-root", "/var/run/cdi", "directory the container runtime reads CDI specs from", variable="CDI_ROOT"
    )
    lock_directory: str = _setting(
        "--lock-directory",
        LOCK_DIRECTORY,
        f"host directory that containers with HAMi's library see as {LOCK_DIRECTORY}",
        variable="HAMI_LOCK_DIRECTORY",
    )
    allocation: str = _setting(
        "--allocation",
        AUTO,
        "how allocations find their Pod: identity (ask the kubelet), lock (HAMi's node lock), auto",
        read=_one_of((AUTO, IDENTITY, LOCK)),
        variable="HAMI_ALLOCATION",
    )
    library: str = _setting(
        "--library",
        "/opt/hami/lib/libvgpu.so",
        "the library to install under $HOOK_PATH/vgpu; empty: none, containers get HAMi's that is there",
        variable="HAMI_LIBRARY",
    )
    health_probation_seconds: float = _setting(
        "--health-probation",
        "5m",
        "how long a fault that passes must be absent before its device is healthy again",
        read=flags.span,
        variable="HAMI_HEALTH_PROBATION",
    )
    metrics_bind_address: str = _setting(
        "--metrics-bind-address",
        "127.0.0.1:9396",
        "host:port of /livez, /readyz, /metrics and /version; empty: none",
        variable="METRICS_BIND_ADDRESS",
    )
    is_init_error_fatal: bool = _setting(
        "--fail-on-init-error",
        True,
        "exit if the driver cannot be used; false: wait for it",
        variable="FAIL_ON_INIT_ERROR",
        key="flags.failOnInitError",
    )
    driver_root: str = _setting(
        "--nvidia-driver-root",
        "/",
        "driver root on the host",
        variable="NVIDIA_DRIVER_ROOT",
        key="flags.nvidiaDriverRoot",
    )
    dev_root: str = _setting(
        "--dev-root --nvidia-dev-root",
        "",
        "root of device nodes on the host; empty: the driver root",
        variable="NVIDIA_DEV_ROOT",
        key="flags.nvidiaDevRoot",
    )
    is_passing_device_nodes: bool = _setting(
        "--pass-device-specs",
        False,
        "give containers the device nodes",
        variable="PASS_DEVICE_SPECS",
        key="flags.plugin.passDeviceSpecs",
    )
    list_strategies: tuple[str, ...] = _setting(
        "--device-list-strategy",
        "",
        f"how devices reach containers: a comma list of {', '.join(LIST_STRATEGIES)}; "
        f"empty: {CDI_CRI} if it works here, else {ENVVAR}",
        read=_words(LIST_STRATEGIES),
        variable="DEVICE_LIST_STRATEGY",
        key="flags.plugin.deviceListStrategy",
    )
    cdi_annotation_prefix: str = _setting(
        "--cdi-annotation-prefix",
        "cdi.k8s.io/",
        f"start of the annotation keys of {CDI_ANNOTATIONS}",
        variable="CDI_ANNOTATION_PREFIX",
        key="flags.plugin.cdiAnnotationPrefix",
    )
    cdi_generator: str = _setting(
        "--cdi-generator",
        "/opt/hami/lib/nvidia-ctk",
        "NVIDIA's generator of CDI specs; empty: none",
        variable="HAMI_CDI_GENERATOR",
    )
    cdi_hook: str = _setting(
        "--cdi-hook",
        "/opt/hami/lib/nvidia-cdi-hook",
        "the nvidia-cdi-hook to install under $HOOK_PATH/vgpu",
        variable="HAMI_CDI_HOOK",
    )
    memory_enforcement: str = _setting(
        "--memory-enforcement",
        enforcement.AUTO,
        "who limits device memory: auto (the driver too, where it can by cgroup), required (a Node whose driver cannot "
        "offers nothing), none (the library alone)",
        read=_one_of(enforcement.SETTINGS),
        variable="HAMI_MEMORY_ENFORCEMENT",
    )
    memory_margin_mib: int = _setting(
        "--memory-margin-mib",
        0,
        "how far the driver's limit is above a share, for what the contexts of the container's processes take",
        read=flags.whole,
        variable="HAMI_MEMORY_MARGIN_MIB",
    )
    limit_hook: str = _setting(
        "--limit-hook",
        "/opt/hami/lib/hami-limit-hook",
        "the hami-limit-hook to install under $HOOK_PATH/vgpu",
        variable="HAMI_LIMIT_HOOK",
    )
    cgroup_root: str = _setting(
        "--cgroup-root",
        "/sys/fs/cgroup",
        "mount of cgroup v2, on the host and in this container",
        variable="HAMI_CGROUP_ROOT",
    )
    compute_enforcement: str = _setting(
        "--compute-enforcement",
        enforcement.BY_LIBRARY,
        "who limits compute: library, mps (MPS, by a namespace for each container that cannot be root, and the library "
        "the others'), mps-required (MPS alone: others do not start, and a Node without it offers nothing)",
        read=_one_of(enforcement.COMPUTE_SETTINGS),
        variable="HAMI_COMPUTE_ENFORCEMENT",
    )
    mps_root: str = _setting(
        "--mps-root",
        "",
        "folder of the MPS control daemon, on the host and in this container: limits compute on a Node in mode mps",
        read=_folder,
        variable="MPS_ROOT",
        key="flags.mpsRoot",
    )
    device_names: str = _setting(
        "--device-id-strategy",
        "uuid",
        "what the device list contains: uuid or index",
        read=_one_of(("uuid", "index")),
        variable="DEVICE_ID_STRATEGY",
        key="flags.plugin.deviceIDStrategy",
    )
    preference: str = _setting(
        "--shared-devices-allocation-policy",
        ANNOTATION,
        f"replicas to prefer if no Pod's annotation names devices: {', '.join(POLICIES)}",
        read=_one_of(POLICIES),
        variable="SHARED_DEVICES_ALLOCATION_POLICY",
        key="flags.plugin.sharedDevicesAllocationPolicy",
    )
    replica_ids: str = _setting(
        "--replica-ids",
        ids.HAMI,
        "how the kubelet's device IDs are spelled: hami (<UUID>-<n>) or nvidia (<UUID>::<n>, for dcgm-exporter)",
        read=_one_of(ids.SEPARATORS),
        variable="HAMI_REPLICA_IDS",
    )
    mock_file: str = _setting(
        "--mock-devices",
        "",
        "file with devices to offer that do not exist, to try a cluster without any; empty: the driver's devices",
        variable="HAMI_MOCK_DEVICES",
    )
    gdrcopy: bool = _setting(
        "--gdrcopy-enabled",
        False,
        "set NVIDIA_GDRCOPY",
        variable="GDRCOPY_ENABLED",
        key="flags.gdrcopyEnabled",
    )
    gds: bool = _setting("--gds-enabled", False, "set NVIDIA_GDS", variable="GDS_ENABLED", key="flags.gdsEnabled")
    mofed: bool = _setting(
        "--mofed-enabled", False, "set NVIDIA_MOFED", variable="MOFED_ENABLED", key="flags.mofedEnabled"
    )
    driver_root_here: str = _setting(
        "--driver-root-ctr-path --container-driver-root",
        "/driver-root",
        "mount of the driver root in this container",
        variable="DRIVER_ROOT_CTR_PATH CONTAINER_DRIVER_ROOT",
        key="flags.plugin.containerDriverRoot",
    )
    discovery: str = _setting(
        "--device-discovery-strategy",
        AUTO_DISCOVERY,
        "auto or nvml",
        read=_one_of((AUTO_DISCOVERY, "nvml")),
        variable="DEVICE_DISCOVERY_STRATEGY",
        key="flags.deviceDiscoveryStrategy",
    )
    imex_channels: tuple[int, ...] = _setting(
        "--imex-channel-ids", "", "empty, or 0", read=_imex_channels, variable="IMEX_CHANNEL_IDS", key="imex.channelIDs"
    )
    is_imex_required: bool = _setting(
        "--imex-required",
        False,
        "a missing IMEX channel is an error",
        variable="IMEX_REQUIRED",
        key="imex.required",
    )

    hook_path: str
    """Root on the host and in containers; everything is below `<hook_path>/vgpu`."""
    device_config: DeviceConfig
    resource: str
    """The resource registered with the kubelet, e.g. `nvidia.com/gpu`."""
    sharing: SharingPolicy
    is_one_replica_at_most: bool
    """Whether a container with several replicas of shared devices is refused."""
    lib_cuda_log_level: str
    is_core_limit_disabled: bool
    mock_devices: tuple[MockDevice, ...]
    """Devices to offer instead of the driver's; empty: the driver's."""
    is_topology_scored: bool
    """Write the scores of the links into the Node's annotations."""
    mig_rules: tuple[MigProfileRule, ...]
    """The profiles that a Node in mode `mig` offers, by model."""
    health: HealthPolicy
    wire_version: WireVersion
    named_config: str
    """The named config in use; empty: none."""
    warnings: tuple[str, ...] = ()
    """One sentence for each part of the files that has no effect and may be a mistake."""
    ignored: tuple[str, ...] = ()
    """Keys of the device config that other components read."""
    old_forms: tuple[str, ...] = ()
    """One sentence for each old form that was read."""

    @property
    def rates_links(self) -> bool:
        """Whether the links between devices are read."""
        return self.is_topology_scored or self.preference == ALIGNED

    @property
    def session_settings(self) -> tuple[object, ...]:
        """The settings from files that need a new session when they change; a session adopts all others."""
        driver = (self.driver_root, self.dev_root, self.driver_root_here)
        features = (self.gdrcopy, self.gds, self.mofed, self.imex_channels)
        mig = (self.mig_rules, self.sharing.mode == MIG, self.mig_strategy)
        daemon = (self.mps_root, self.compute_enforcement) if self.sharing.mode == MPS else ()
        return self.resource, self.mock_devices, driver, features, self.list_strategies, mig, daemon

    @property
    def vgpu_directory(self) -> Path:
        """The directory on the host that holds the library and the containers' regions."""
        return Path(self.hook_path) / "vgpu"

    @property
    def plugin_directory(self) -> Path:
        """The directory of the kubelet's registration socket, its checkpoint and the plugins' sockets."""
        return Path(self.kubelet_socket or DEFAULT_KUBELET_SOCKET).parent

    def socket(self, resource: str) -> Path:
        """Return the path of the plugin's socket for *resource*, beside the kubelet's."""
        return self.plugin_directory / f"nvidia-{resource.rpartition('/')[2]}.sock"


@cache
def parser() -> flags.FlagParser:
    """Return the parser of the command line."""
    made = parser_of(Config, NAME, __version__, "Hands granted shares to containers: the kubelet device plugin.")
    for ignored in IGNORED_FLAGS:
        flags.ignored_flag(made, f"--{ignored.name}", ignored.reason, is_bool=ignored.is_bool)
    return made


def parse_arguments(arguments: Sequence[str]) -> Namespace:
    """
    Return the flags in *arguments*; absent flags are absent from the result.

    Raises:
        SystemExit: after `--help`, `--version` or an invalid flag; the text has been printed.
    """
    found: Namespace = parser().parse_args(arguments)
    return found

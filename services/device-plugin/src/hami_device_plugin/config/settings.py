"""
The plugin's settings, checked.

Neighbours: `loader` makes them.
"""

from dataclasses import dataclass
from pathlib import Path

from hami_device_plugin.config.arguments import DEFAULT_KUBELET_SOCKET
from hami_device_plugin.decide import mps
from hami_device_plugin.decide.cards.xids import HealthPolicy
from hami_device_plugin.decide.hardware.mock import MockDevice
from hami_device_plugin.decide.inventory import SharingPolicy
from hami_device_plugin.decide.mig import offer
from hami_device_plugin.decide.replicas.preference import ALIGNED
from hamicommon.config import DeviceConfig
from hamicommon.vendors.nvidia import MigProfileRule
from hamicommon.wire.version import WireVersion

AUTO_DISCOVERY = "auto"


@dataclass(frozen=True, slots=True)
class DriverRoots:
    """Where the driver is."""

    root: str
    """The driver's root on the host."""
    dev_root: str
    """The folder on the host whose `dev` has the device files."""
    here: str
    """Where the driver's root is mounted in this container."""


@dataclass(frozen=True, slots=True)
class Features:
    """What every container gets besides devices and driver."""

    gdrcopy: bool
    gds: bool
    mofed: bool
    imex_channels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Config:
    """The plugin's settings."""

    node_name: str
    hook_path: str
    """Root on the host and in containers; everything is below `<hook_path>/vgpu`."""
    kubeconfig: str | None
    kubelet_socket: str
    """Empty: the plugin does not register."""
    pod_resources_socket: str
    cdi_root: str
    lock_directory: str
    allocation: str
    """One of `mode.AUTO`, `mode.IDENTITY` and `mode.LOCK`."""
    discovery: str
    """AUTO_DISCOVERY, or `nvml`."""
    library: str
    """The library to install; empty: none."""
    metrics_bind_address: str
    cdi_generator: str
    """NVIDIA's generator of CDI specs; empty: none."""
    cdi_hook: str
    """The nvidia-cdi-hook to install."""
    memory_enforcement: str
    """One of `enforcement.SETTINGS`."""
    limit_hook: str
    """The hami-limit-hook to install."""
    cgroup_root: str
    """Where cgroup v2 is mounted, on the host and here."""
    mps_root: str
    """Folder of an MPS control daemon, on the host and here; empty: none."""
    cdi_annotation_prefix: str
    driver: DriverRoots
    is_init_error_fatal: bool
    is_passing_device_nodes: bool
    list_strategies: tuple[str, ...]
    """Empty: the best that works here."""
    is_listed_by_index: bool
    features: Features
    is_imex_required: bool
    device_config: DeviceConfig
    resource: str
    """The resource registered with the kubelet, e.g. `nvidia.com/gpu`."""
    sharing: SharingPolicy
    lib_cuda_log_level: str
    is_core_limit_disabled: bool
    follows_kubelet: bool
    """Under the lock, use the devices of the replicas that the kubelet picked."""
    mock_devices: tuple[MockDevice, ...]
    """Devices to offer instead of the driver's; empty: the driver's."""
    preference: str
    """One of `preference.POLICIES`."""
    is_topology_scored: bool
    """Write the scores of the links into the Node's annotations."""
    mig_strategy: str
    """One of `static.STRATEGIES`; `none` on a Node in mode `mig`."""
    mig_rules: tuple[MigProfileRule, ...]
    """The profiles that a Node in mode `mig` offers, by model."""
    health: HealthPolicy
    wire_version: WireVersion
    node_label: str
    """The Node label that names a config."""
    named_config: str
    """The named config in use; empty: none."""
    warnings: tuple[str, ...] = ()
    """One sentence for each part of the files that has no effect and may be a mistake."""
    ignored: tuple[str, ...] = ()
    """Keys of the device config that other components read."""
    old_forms: tuple[str, ...] = ()
    """One sentence for each old form that was read."""
    without_effect: tuple[str, ...] = ()
    """Flags and variables that were given and have no effect, each with the reason."""

    @property
    def rates_links(self) -> bool:
        """Whether the links between devices are read."""
        return self.is_topology_scored or self.preference == ALIGNED

    @property
    def session_settings(self) -> tuple[object, ...]:
        """The settings from files that need a new session when they change; a session adopts all others."""
        mig = (self.mig_rules, self.sharing.mode == offer.MODE, self.mig_strategy)
        daemon = self.mps_root if self.sharing.mode == mps.MODE else ""
        return self.resource, self.mock_devices, self.driver, self.features, self.list_strategies, mig, daemon

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

"""
The plugin's command line: HAMi's flags, and a few more.

Owns names, aliases, environment variables and defaults. Neighbours: `loader` checks the values.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/cmd/device-plugin/nvidia/main.go
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from hami_device_plugin import __version__
from hami_device_plugin.config.ignored import IGNORED_FLAGS
from hami_device_plugin.config.named import LABEL, NAMED, SINGLE, STRATEGIES
from hami_device_plugin.decide import enforcement
from hami_device_plugin.decide.allocation import CDI_ANNOTATIONS, CDI_CRI, ENVVAR, LIST_STRATEGIES, LOCK_DIRECTORY
from hami_device_plugin.decide.mig.static import NONE
from hami_device_plugin.decide.mode import AUTO
from hami_device_plugin.decide.replicas import ids
from hami_device_plugin.decide.replicas.preference import ANNOTATION, POLICIES
from hamicommon.runtime.program import flags

DEFAULT_KUBELET_SOCKET = "/var/lib/kubelet/device-plugins/kubelet.sock"
NAME = "hami-device-plugin"


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag; the environment and the device config's `flags` section may also set it."""

    name: str
    default: str
    help: str
    env: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    """Path in the device config."""
    aliases: tuple[str, ...] = ()
    is_bool: bool = False


_PLUGIN = ("flags", "plugin")
FLAGS = (
    Flag("config-file", "", "device config, YAML; must be given", env=("CONFIG_FILE",)),
    Flag("node-config-file", "/config/config.json", "settings of single Nodes, JSON; may be missing"),
    Flag(
        "config-file-srcdir",
        "",
        "folder of named configs, of which a Node label chooses one; empty: none",
        env=("CONFIG_FILE_SRCDIR",),
    ),
    Flag("node-label", LABEL, "Node label that names the config", env=("NODE_LABEL",)),
    Flag("default-config", "", "config of Nodes without the label", env=("DEFAULT_CONFIG",)),
    Flag(
        "fallback-strategies",
        f"{NAMED},{SINGLE}",
        f"how to find a config without label and default, in order: {', '.join(STRATEGIES)}",
        env=("FALLBACK_STRATEGIES",),
    ),
    Flag("node-name", "", "name of the Node this runs on", env=("NODE_NAME", "NodeName")),
    Flag(
        "kubelet-socket",
        DEFAULT_KUBELET_SOCKET,
        "the kubelet's registration socket; empty: do not register",
        env=("KUBELET_SOCKET",),
    ),
    Flag(
        "pod-resources-socket",
        "/var/lib/kubelet/pod-resources/kubelet.sock",
        "the kubelet's PodResources socket",
        env=("POD_RESOURCES_SOCKET",),
    ),
    Flag("cdi-root", "/var/run/cdi", "directory the container runtime reads CDI specs from", env=("CDI_ROOT",)),
    Flag(
        "lock-directory",
        LOCK_DIRECTORY,
        f"host directory that containers with HAMi's library see as {LOCK_DIRECTORY}",
        env=("HAMI_LOCK_DIRECTORY",),
    ),
    Flag(
        "allocation",
        AUTO,
        "how allocations find their Pod: identity (ask the kubelet), lock (HAMi's node lock), auto",
        env=("HAMI_ALLOCATION",),
    ),
    Flag(
        "library",
        "/opt/hami/lib/libvgpu.so",
        "the library to install under $HOOK_PATH/vgpu; empty: none, containers get HAMi's that is there",
        env=("HAMI_LIBRARY",),
    ),
    Flag(
        "health-probation",
        "5m",
        "how long a fault that passes must be absent before its device is healthy again",
        env=("HAMI_HEALTH_PROBATION",),
    ),
    Flag(
        "metrics-bind-address",
        "127.0.0.1:9396",
        "host:port of /livez, /readyz, /metrics and /version; empty: none",
        env=("METRICS_BIND_ADDRESS",),
    ),
    Flag(
        "mig-strategy",
        NONE,
        "MIG instances to offer: none (whole GPUs), single (of one size, as the usual resource), mixed (each size as "
        "nvidia.com/mig-<profile>); has no effect in operatingmode mig",
        env=("MIG_STRATEGY",),
        key=("flags", "migStrategy"),
    ),
    Flag(
        "fail-on-init-error",
        "true",
        "exit if the driver cannot be used; false: wait for it",
        env=("FAIL_ON_INIT_ERROR",),
        key=("flags", "failOnInitError"),
        is_bool=True,
    ),
    Flag(
        "nvidia-driver-root",
        "/",
        "driver root on the host",
        env=("NVIDIA_DRIVER_ROOT",),
        key=("flags", "nvidiaDriverRoot"),
    ),
    Flag(
        "dev-root",
        "",
        "root of device nodes on the host; empty: the driver root",
        env=("NVIDIA_DEV_ROOT",),
        key=("flags", "nvidiaDevRoot"),
        aliases=("nvidia-dev-root",),
    ),
    Flag(
        "pass-device-specs",
        "false",
        "give containers the device nodes",
        env=("PASS_DEVICE_SPECS",),
        key=(*_PLUGIN, "passDeviceSpecs"),
        is_bool=True,
    ),
    Flag(
        "device-list-strategy",
        "",
        f"how devices reach containers: a comma list of {', '.join(LIST_STRATEGIES)}; "
        f"empty: {CDI_CRI} if it works here, else {ENVVAR}",
        env=("DEVICE_LIST_STRATEGY",),
        key=(*_PLUGIN, "deviceListStrategy"),
    ),
    Flag(
        "cdi-annotation-prefix",
        "cdi.k8s.io/",
        f"start of the annotation keys of {CDI_ANNOTATIONS}",
        env=("CDI_ANNOTATION_PREFIX",),
        key=(*_PLUGIN, "cdiAnnotationPrefix"),
    ),
    Flag(
        "cdi-generator",
        "/opt/hami/lib/nvidia-ctk",
        "NVIDIA's generator of CDI specs; empty: none",
        env=("HAMI_CDI_GENERATOR",),
    ),
    Flag(
        "cdi-hook",
        "/opt/hami/lib/nvidia-cdi-hook",
        "the nvidia-cdi-hook to install under $HOOK_PATH/vgpu",
        env=("HAMI_CDI_HOOK",),
    ),
    Flag(
        "memory-enforcement",
        enforcement.AUTO,
        "who limits device memory: auto (the driver too, where it can by cgroup), required (a Node whose driver cannot "
        "offers nothing), none (the library alone)",
        env=("HAMI_MEMORY_ENFORCEMENT",),
    ),
    Flag(
        "limit-hook",
        "/opt/hami/lib/hami-limit-hook",
        "the hami-limit-hook to install under $HOOK_PATH/vgpu",
        env=("HAMI_LIMIT_HOOK",),
    ),
    Flag(
        "cgroup-root",
        "/sys/fs/cgroup",
        "mount of cgroup v2, on the host and in this container",
        env=("HAMI_CGROUP_ROOT",),
    ),
    Flag(
        "mps-root",
        "",
        "folder of the MPS control daemon, on the host and in this container: limits compute on a Node in mode mps",
        env=("MPS_ROOT",),
        key=("flags", "mpsRoot"),
    ),
    Flag(
        "device-id-strategy",
        "uuid",
        "what the device list contains: uuid or index",
        env=("DEVICE_ID_STRATEGY",),
        key=(*_PLUGIN, "deviceIDStrategy"),
    ),
    Flag(
        "shared-devices-allocation-policy",
        ANNOTATION,
        f"replicas to prefer if no Pod's annotation names devices: {', '.join(POLICIES)}",
        env=("SHARED_DEVICES_ALLOCATION_POLICY",),
        key=(*_PLUGIN, "sharedDevicesAllocationPolicy"),
    ),
    Flag(
        "replica-ids",
        ids.HAMI,
        "how the kubelet's device IDs are spelled: hami (<UUID>-<n>) or nvidia (<UUID>::<n>, for dcgm-exporter)",
        env=("HAMI_REPLICA_IDS",),
    ),
    Flag(
        "mock-devices",
        "",
        "file with devices to offer that do not exist, to try a cluster without any; empty: the driver's devices",
        env=("HAMI_MOCK_DEVICES",),
    ),
    Flag(
        "gdrcopy-enabled",
        "false",
        "set NVIDIA_GDRCOPY",
        env=("GDRCOPY_ENABLED",),
        key=("flags", "gdrcopyEnabled"),
        is_bool=True,
    ),
    Flag("gds-enabled", "false", "set NVIDIA_GDS", env=("GDS_ENABLED",), key=("flags", "gdsEnabled"), is_bool=True),
    Flag(
        "mofed-enabled",
        "false",
        "set NVIDIA_MOFED",
        env=("MOFED_ENABLED",),
        key=("flags", "mofedEnabled"),
        is_bool=True,
    ),
    Flag(
        "driver-root-ctr-path",
        "/driver-root",
        "mount of the driver root in this container",
        env=("DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT"),
        key=(*_PLUGIN, "containerDriverRoot"),
        aliases=("container-driver-root",),
    ),
    Flag(
        "device-discovery-strategy",
        "auto",
        "auto or nvml",
        env=("DEVICE_DISCOVERY_STRATEGY",),
        key=("flags", "deviceDiscoveryStrategy"),
    ),
    Flag("imex-channel-ids", "", "empty, or 0", env=("IMEX_CHANNEL_IDS",), key=("imex", "channelIDs")),
    Flag(
        "imex-required",
        "false",
        "a missing IMEX channel is an error",
        env=("IMEX_REQUIRED",),
        key=("imex", "required"),
        is_bool=True,
    ),
)


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """
    Return the flags in *arguments*; absent flags are absent from the result.

    Raises:
        SystemExit: after `--help`, `--version` or an invalid flag; the text has been printed.
    """
    parser = flags.parser(NAME, __version__, "Hands granted shares to containers: the kubelet device plugin.")
    for flag in FLAGS:
        names = [f"--{name}" for name in (flag.name, *flag.aliases)]
        if flag.is_bool:
            parser.bool_flags.update(names)
        shown = f"{flag.help} [{', '.join(f'${name}' for name in flag.env)}]" if flag.env else flag.help
        shown = f"{shown} (default: {flag.default})" if flag.default else shown
        parser.add_argument(*names, default=argparse.SUPPRESS, metavar="BOOL" if flag.is_bool else None, help=shown)
    for ignored in IGNORED_FLAGS:
        flags.ignored_flag(parser, f"--{ignored.name}", ignored.reason, is_bool=ignored.is_bool)
    found: argparse.Namespace = parser.parse_args(arguments)
    return found

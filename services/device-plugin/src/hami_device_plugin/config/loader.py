"""
Read the plugin's settings from flags, environment, device config and this Node's overrides.

Owns their precedence and which values are valid. A flag wins over its variable, then come `flags` of the named config,
`flags` of the device config, and the default. How devices are shared is read from `config.json`, then from the named
config, then from the device config.
Reports all problems at once. Reads no file: the caller passes their contents.
Neighbours: `arguments` has the flags, `hamicommon.config` and `hamicommon.node_overrides` the files' own values.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/cmd/device-plugin/nvidia/main.go
"""

import argparse
from argparse import ArgumentTypeError
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import yaml

from hami_device_plugin.config.arguments import FLAGS
from hami_device_plugin.config.ignored import used_keys, used_settings
from hami_device_plugin.config.named import STRATEGIES, NamedConfig, choose_name, read_named
from hami_device_plugin.config.settings import AUTO_DISCOVERY, Config, DriverRoots, Features
from hami_device_plugin.decide import enforcement, mps
from hami_device_plugin.decide.allocation import LIST_STRATEGIES
from hami_device_plugin.decide.cards.xids import HealthPolicy, health_policy
from hami_device_plugin.decide.hardware.mock import MockDevice, read_mock_devices
from hami_device_plugin.decide.inventory import SharingPolicy
from hami_device_plugin.decide.mig import offer, static
from hami_device_plugin.decide.mode import AUTO, IDENTITY, LOCK
from hami_device_plugin.decide.replicas.ids import SEPARATORS
from hami_device_plugin.decide.replicas.preference import POLICIES
from hamicommon.config import ConfigError, DeviceConfig, Texts, Unreadable, load_device_config
from hamicommon.node_overrides import NodeConfig, NodeOverrides, load_node_overrides
from hamicommon.runtime.program.flags import span
from hamicommon.vendors import nvidia
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.go.strconv import parse_bool
from hamicommon.wire.version import NEWEST, WireVersion

TRUE_IN_HAMI = "true"
"""The one spelling that HAMi compares a variable with."""
NO_STRATEGY = "none"
"""That of mock devices: no runtime of NVIDIA's can resolve a device that does not exist."""
DEFAULT_HOOK_PATH = "/usr/local"
"""The chart's; HAMi itself has none."""


def files(arguments: argparse.Namespace, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the paths of the device config, empty if none is given, of the Nodes' overrides, and of mock devices."""
    loader = _Loader(arguments, environ, {})
    mock = loader.text("mock-devices")
    return loader.text("config-file"), loader.text("node-config-file"), *((mock,) if mock else ())


def named_folder(arguments: argparse.Namespace, environ: Mapping[str, str]) -> str:
    """Return the path of the folder with named configs; empty if none is given."""
    return _Loader(arguments, environ, {}).text("config-file-srcdir")


def load(arguments: argparse.Namespace, environ: Mapping[str, str], texts: Texts, label: str | None = None) -> Config:
    """
    Return the settings; *texts* are the contents of `files`, and of the files in `named_folder`.

    *label* is the value of the Node's label, empty without one. None reads no named config.

    Raises:
        ConfigError: with every problem found.
    """
    return _Loader(arguments, environ, texts, label).load()


class _Loader:
    """One pass over all sources that collects every problem."""

    def __init__(
        self, arguments: argparse.Namespace, environ: Mapping[str, str], texts: Texts, label: str | None = None
    ) -> None:
        self._label = label
        self._named = NamedConfig()
        self._arguments = vars(arguments)
        self._environ = environ
        self._texts = texts
        self._problems: list[str] = []
        self._file: Mapping[str, Any] = {}

    def load(self) -> Config:
        """Return the settings, or raise with every problem."""
        device_config = self._device_config()
        overrides = self._overrides()
        node_name = self.text("node-name")
        if not node_name:
            self._problems.append("--node-name: is required; set the environment variable NODE_NAME to the Node's name")
        name = self._read_named(node_name)
        entries = (*self._named.overrides.entries, *overrides.entries)
        node = replace(overrides, entries=entries).apply(device_config[nvidia.SECTION], node_name)
        self._check(device_config, node)
        warnings = (*device_config.warnings, *self._warnings(node, node_name), *overrides.warnings)
        config = self._assemble(device_config, node, node_name, name, warnings)
        if self._problems:
            raise ConfigError(tuple(self._problems))
        return config

    def _check(self, device_config: DeviceConfig, node: NodeConfig) -> None:
        """Report settings that do not go together."""
        self._refuse_mps_sharing()
        if not node.nvidia.resource_count_name and device_config != DeviceConfig():
            self._problems.append("nvidia.resourceCountName: is empty, so there is nothing to register")

    def _warnings(self, node: NodeConfig, node_name: str) -> Iterator[str]:
        """Yield a sentence for each part of the files that has no effect."""
        known = {flag.key for flag in FLAGS}
        yield from used_keys(self._file, known)
        yield from used_keys(self._named.root, known)
        yield from self._named.warnings
        has_root = bool(self.text("mps-root"))
        if node.operating_mode == mps.MODE and not has_root:
            yield f"operatingmode of Node {node_name}: mps means hami-core: --mps-root names no MPS daemon"
        if node.operating_mode != mps.MODE and has_root:
            yield f"--mps-root: has no effect: operatingmode of Node {node_name} is not mps"

    def _assemble(
        self,
        device_config: DeviceConfig,
        node: NodeConfig,
        node_name: str,
        named_config: str,
        warnings: tuple[str, ...],
    ) -> Config:
        is_mig = node.operating_mode == offer.MODE
        mig_strategy = self._choice("mig-strategy", static.STRATEGIES)
        mock_devices = self._mock_devices(node_name)
        return Config(
            node_name=node_name,
            hook_path=self._environ.get("HOOK_PATH", DEFAULT_HOOK_PATH).rstrip("/"),
            kubeconfig=self._arguments.get("kubeconfig") or None,
            kubelet_socket=self.text("kubelet-socket"),
            pod_resources_socket=self.text("pod-resources-socket"),
            cdi_root=self.text("cdi-root"),
            lock_directory=self.text("lock-directory"),
            allocation=self._choice("allocation", (AUTO, IDENTITY, LOCK)),
            discovery=self._choice("device-discovery-strategy", (AUTO_DISCOVERY, "nvml")),
            library=self.text("library"),
            metrics_bind_address=self.text("metrics-bind-address"),
            cdi_generator=self.text("cdi-generator"),
            cdi_hook=self.text("cdi-hook"),
            memory_enforcement=self._choice("memory-enforcement", enforcement.SETTINGS),
            limit_hook=self.text("limit-hook"),
            cgroup_root=self.text("cgroup-root"),
            mps_root=self._mps_root(),
            cdi_annotation_prefix=self.text("cdi-annotation-prefix"),
            driver=self._driver_roots(),
            is_init_error_fatal=self._bool("fail-on-init-error"),
            is_passing_device_nodes=self._bool("pass-device-specs"),
            list_strategies=(NO_STRATEGY,) if mock_devices else self._list_strategies(),
            is_listed_by_index=self._choice("device-id-strategy", ("uuid", "index")) == "index",
            features=self._features(),
            is_imex_required=self._bool("imex-required"),
            device_config=device_config,
            resource=node.nvidia.resource_count_name,
            sharing=_sharing(node, spelling=self._choice("replica-ids", tuple(SEPARATORS))),
            lib_cuda_log_level="" if is_mig else str(node.nvidia.lib_cuda_log_level),
            is_core_limit_disabled=node.nvidia.disable_core_limit and not is_mig,
            follows_kubelet=node.preferred_allocation and not is_mig,
            mock_devices=mock_devices,
            preference=self._choice("shared-devices-allocation-policy", POLICIES),
            is_topology_scored=self._environ.get("ENABLE_TOPOLOGY_SCORE") == TRUE_IN_HAMI,
            mig_strategy=static.NONE if is_mig else mig_strategy,
            mig_rules=node.nvidia.mig_profile_allowlist,
            health=self._health(),
            wire_version=self._wire_version(),
            node_label=self.text("node-label"),
            named_config=named_config,
            warnings=warnings,
            ignored=device_config.ignored,
            old_forms=device_config.old_forms,
            without_effect=tuple(used_settings(self._arguments, self._environ)),
        )

    def _driver_roots(self) -> DriverRoots:
        root = self.text("nvidia-driver-root")
        return DriverRoots(root, dev_root=self.text("dev-root") or root, here=self.text("driver-root-ctr-path"))

    def _features(self) -> Features:
        return Features(
            gdrcopy=self._bool("gdrcopy-enabled"),
            gds=self._bool("gds-enabled"),
            mofed=self._bool("mofed-enabled"),
            imex_channels=self._imex_channels(),
        )

    def _device_config(self) -> DeviceConfig:
        path = self.text("config-file")
        if not path:
            self._problems.append("--config-file: is required; it names the resources to offer")
            return DeviceConfig()
        text = self._texts[path]
        if isinstance(text, Unreadable):
            self._problems.append(f"--config-file {path}: {text.reason}; it must be a device config, YAML")
            return DeviceConfig()
        try:
            config = load_device_config(text)
        except ConfigError as error:
            self._problems += error.in_file(path).problems
            return DeviceConfig()
        try:
            root = yaml.safe_load(text)
        except yaml.YAMLError as error:
            self._problems.append(f"{path}: {error}")
            return config
        self._file = root if isinstance(root, dict) else {}
        return config

    def _overrides(self) -> NodeOverrides:
        path = self.text("node-config-file")
        text = self._texts[path]
        if isinstance(text, Unreadable):
            if not text.is_missing:
                self._problems.append(f"--node-config-file {path}: {text.reason}; it must be JSON, or missing")
            return NodeOverrides()
        try:
            return load_node_overrides(text)
        except ConfigError as error:
            self._problems += error.in_file(path).problems
            return NodeOverrides()

    def _read_named(self, node_name: str) -> str:
        """Read the config that the label chooses, and return its name; empty if there is none."""
        strategies = self._list("fallback-strategies", STRATEGIES)
        folder = self.text("config-file-srcdir").rstrip("/")
        if not folder or self._label is None:
            return ""
        names = {path.removeprefix(f"{folder}/") for path in self._texts if path.startswith(f"{folder}/")}
        try:
            name = choose_name(self._label, names, self.text("default-config"), strategies)
        except ConfigError as error:
            self._problems += [
                f"Node label {self.text('node-label')}={self._label!r}, --config-file-srcdir {folder}: {problem}"
                for problem in error.problems
            ]
            return ""
        text = self._texts[f"{folder}/{name}"] if name else ""
        if isinstance(text, Unreadable):
            self._problems.append(f"{folder}/{name}: {text.reason}; it must be YAML")
            return name
        try:
            self._named = read_named(text, node_name)
        except ConfigError as error:
            self._problems += error.in_file(f"{folder}/{name}").problems
        return name

    def text(self, name: str) -> str:
        """Return the value of the flag *name* from the first source that has one."""
        flag = next(flag for flag in FLAGS if flag.name == name)
        given = self._arguments.get(name.replace("-", "_"))
        if given is not None:
            return str(given)
        for variable in flag.env:
            if self._environ.get(variable):
                return self._environ[variable]
        return self._from_file(flag.key) or flag.default

    def _from_file(self, key: tuple[str, ...]) -> str:
        found = (_at(root, key) for root in (self._named.root, self._file)) if key else ()
        node: Any = next((value for value in found if value is not None), None)
        if isinstance(node, list):
            return ",".join(map(str, node))
        if isinstance(node, bool):
            return str(node).lower()
        return "" if node is None else str(node)

    def _bool(self, name: str) -> bool:
        text = self.text(name)
        value = parse_bool(text)
        if value is None:
            self._problems.append(f"--{name}: {text!r} is not true or false")
        return bool(value)

    def _choice(self, name: str, choices: tuple[str, ...]) -> str:
        text = self.text(name)
        if text not in choices:
            self._problems.append(f"--{name}: {text!r} is not one of {', '.join(choices)}")
        return text

    def _list_strategies(self) -> tuple[str, ...]:
        names = [name.strip() for name in self.text("device-list-strategy").split(",") if name.strip()]
        self._problems += [
            f"--device-list-strategy: {name!r} is not one of {', '.join(LIST_STRATEGIES)}"
            for name in names
            if name not in LIST_STRATEGIES
        ]
        return tuple(names)

    def _list(self, name: str, choices: tuple[str, ...]) -> tuple[str, ...]:
        words = tuple(word.strip() for word in self.text(name).split(",") if word.strip())
        for word in words:
            if word not in choices:
                self._problems.append(f"--{name}: {word!r} is not one of {', '.join(choices)}")
        return words

    def _mock_devices(self, node_name: str) -> tuple[MockDevice, ...]:
        path = self.text("mock-devices")
        text = self._texts[path] if path else ""
        if isinstance(text, Unreadable):
            self._problems.append(f"--mock-devices {path}: {text.reason}; it must be YAML")
            return ()
        try:
            return read_mock_devices(text, node_name) if path else ()
        except ConfigError as error:
            self._problems += error.in_file(path).problems
            return ()

    def _refuse_mps_sharing(self) -> None:
        """Report `sharing.mps` of either file if it divides devices, because nothing would enforce it."""
        for root in (self._named.root, self._file):
            listed = _at(root, ("sharing", "mps", "resources"))
            counts = [each.get("replicas") for each in listed if isinstance(each, dict)] if listed else []
            if any(isinstance(count, int) and count > 1 for count in counts):
                self._problems.append(
                    "sharing.mps: would not hold: its equal parts are not what containers are granted; remove it, set "
                    "nvidia.deviceSplitCount, and for an MPS daemon operatingmode mps and flags.mpsRoot"
                )

    def _mps_root(self) -> str:
        text = self.text("mps-root")
        if text and not text.startswith("/"):
            self._problems.append(f"--mps-root: {text!r} is not an absolute path, such as /run/nvidia/mps")
        return text.rstrip("/")

    def _imex_channels(self) -> tuple[int, ...]:
        text = self.text("imex-channel-ids").strip("[] ")
        if text not in ("", "0"):
            self._problems.append(f"--imex-channel-ids: {text!r} is not empty or 0")
        return (0,) if text else ()

    def _health(self) -> HealthPolicy:
        environ = self._environ
        policy = health_policy(environ.get("DP_DISABLE_HEALTHCHECKS", ""), environ.get("DP_ENABLE_HEALTHCHECKS", ""))
        try:
            return replace(policy, probation=timedelta(seconds=span(self.text("health-probation"))))
        except ArgumentTypeError as error:
            self._problems.append(f"--health-probation: {error}")
            return policy

    def _wire_version(self) -> WireVersion:
        text = self._environ.get("HAMI_WIRE_VERSION", "")
        try:
            return WireVersion.parse(text) if text else NEWEST
        except DecodeError as error:
            self._problems.append(f"HAMI_WIRE_VERSION: {error}")
            return NEWEST


def _at(root: Any, key: tuple[str, ...]) -> Any:
    """Return the value at the path *key* in *root*; None if there is none."""
    for part in key:
        root = root.get(part) if isinstance(root, dict) else None
    return root


def _sharing(node: NodeConfig, *, spelling: str) -> SharingPolicy:
    is_scaled = node.operating_mode != offer.MODE
    return SharingPolicy(
        split_count=node.nvidia.device_split_count,
        memory_scaling=node.nvidia.device_memory_scaling if is_scaled else 1.0,
        core_scaling=node.nvidia.device_core_scaling if is_scaled else 1.0,
        preconfigured_memory_mib=node.nvidia.pre_configured_device_memory_mib,
        mode=node.operating_mode,
        is_numa_reported=node.nvidia.enable_numa_topology,
        spelling=spelling,
        excluded_uuids=node.excluded_uuids,
        excluded_indices=node.excluded_indices,
    )

"""
Read the plugin's settings from flags, environment, device config and this Node's overrides.

Owns their precedence and which values are valid. A flag wins over its variable, then come `flags` of the named config,
`flags` of the device config, and the default. How devices are shared is read from `config.json`, then from the named
config (`nvidia`, then `sharing.timeSlicing`), then from the device config (`sharing.timeSlicing`, then `nvidia`).
Reports all problems at once. Reads no file: the caller passes their contents.
Neighbours: `settings` has the flags, `hamicommon.config` the files' own values.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/cmd/device-plugin/nvidia/main.go
"""

from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

from hami_device_plugin.config.ignored import used_keys, used_variables
from hami_device_plugin.config.named import NamedConfig, choose_name, read_named
from hami_device_plugin.config.settings import Config, parser
from hami_device_plugin.config.time_slicing import TimeSlicing, read_time_slicing
from hami_device_plugin.decide.health.xids import health_policy
from hami_device_plugin.decide.inventory import MIG, MPS, SharingPolicy
from hami_device_plugin.decide.mig import static
from hami_device_plugin.decide.probe.enforcement import BY_LIBRARY
from hami_device_plugin.decide.probe.mock import MockDevice, read_mock_devices
from hami_device_plugin.decide.replicas.limits import LIST_BYTES, most_replicas
from hamicommon.config.device_config import ConfigError, DeviceConfig, Texts, Unreadable, load_device_config
from hamicommon.config.node_overrides import NodeConfig, NodeOverrides, load_node_overrides
from hamicommon.dra.names import DRA
from hamicommon.runtime.program.settings import settings_of, values
from hamicommon.vendors import nvidia
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.go.yaml_nodes import YamlError, plain
from hamicommon.wire.version import NEWEST, WireVersion

TRUE_IN_HAMI = "true"
"""The one spelling that HAMi compares a variable with."""
NO_STRATEGY = "none"
"""That of mock devices: no runtime of NVIDIA's can resolve a device that does not exist."""
DEFAULT_HOOK_PATH = "/usr/local"
"""The chart's; HAMi itself has none."""


def files(arguments: Namespace, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the paths of the device config, empty if none is given, the Nodes' overrides, and mock devices if set."""
    given = _without_files(arguments, environ)
    return given["config_file"], given["node_config_file"], *filter(None, (given["mock_file"],))


def named_folder(arguments: Namespace, environ: Mapping[str, str]) -> str:
    """Return the path of the folder with named configs; empty if none is given."""
    return str(_without_files(arguments, environ)["named_folder"])


def load(arguments: Namespace, environ: Mapping[str, str], texts: Texts, label: str | None = None) -> Config:
    """
    Return the settings; *texts* are the contents of `files`, and of the files in `named_folder`.

    *label* is the value of the Node's label, empty without one. None reads no named config.

    Raises:
        ConfigError: with every problem found.
    """
    return _Loader(arguments, environ, texts, label).load()


def _without_files(arguments: Namespace, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return what flags and variables give for each field of `Config`."""
    return values(Config, parser(), arguments, environ)[0]


class _Loader:
    """One pass over all sources that collects every problem."""

    def __init__(self, arguments: Namespace, environ: Mapping[str, str], texts: Texts, label: str | None) -> None:
        self._label = label
        self._named = NamedConfig()
        self._arguments = arguments
        self._environ = environ
        self._texts = texts
        self._problems: list[str] = []
        self._file: Mapping[str, Any] = {}
        self._given = _without_files(arguments, environ)
        """The settings with flags, by field."""

    def load(self) -> Config:
        """Return the settings, or raise with every problem."""
        device_config = self._device_config(self._given["config_file"])
        overrides = self._overrides(self._given["node_config_file"])
        node_name = self._given["node_name"]
        if not node_name:
            self._problems.append("--node-name: is required; set the environment variable NODE_NAME to the Node's name")
        named_config = self._read_named(node_name)
        self._given, problems = values(Config, parser(), self._arguments, self._environ, self._from_file)
        self._problems += problems
        resource = device_config[nvidia.SECTION].resource_count_name
        slicing = [self._time_slicing(root, resource) for root in (self._file, self._named.root)]
        sliced = (found.entry(node_name) for found in slicing)
        entries = (*sliced, *self._named.overrides.entries, *overrides.entries)
        node = replace(overrides, entries=entries).apply(device_config[nvidia.SECTION], node_name)
        self._check(device_config, node)
        of_slicing = (warning for found in slicing for warning in found.warnings)
        config = Config(
            **self._given | self._resolved(node),
            hook_path=self._environ.get("HOOK_PATH", DEFAULT_HOOK_PATH).rstrip("/"),
            device_config=device_config,
            resource=node.nvidia.resource_count_name,
            sharing=_sharing(node, spelling=self._given["replica_ids"]),
            is_one_replica_at_most=any(found.is_one_at_most for found in slicing),
            is_topology_scored=self._environ.get("ENABLE_TOPOLOGY_SCORE") == TRUE_IN_HAMI,
            mig_rules=node.nvidia.mig_profile_allowlist,
            wire_version=self._wire_version(),
            named_config=named_config,
            warnings=(*device_config.warnings, *self._warnings(node, node_name), *of_slicing, *overrides.warnings),
            ignored=device_config.ignored,
            old_forms=device_config.old_forms,
        )
        if self._problems:
            raise ConfigError(tuple(self._problems))
        return config

    def _resolved(self, node: NodeConfig) -> dict[str, Any]:
        """Return the settings that depend on several sources or on each other."""
        given, environ, is_mig = self._given, self._environ, node.operating_mode == MIG
        mock_devices = self._mock_devices(given["mock_file"], given["node_name"])
        health = health_policy(environ.get("DP_DISABLE_HEALTHCHECKS", ""), environ.get("DP_ENABLE_HEALTHCHECKS", ""))
        preferred = ("enablegetpreferredallocation",) if node.preferred_allocation else ()
        return {
            "dev_root": given["dev_root"] or given["driver_root"],
            "health": replace(health, probation=timedelta(seconds=given["health_probation_seconds"])),
            "is_core_limit_disabled": node.nvidia.disable_core_limit and not is_mig,
            "lib_cuda_log_level": "" if is_mig else str(node.nvidia.lib_cuda_log_level),
            "list_strategies": (NO_STRATEGY,) if mock_devices else given["list_strategies"],
            "mig_strategy": static.NONE if is_mig else given["mig_strategy"],
            "mock_devices": mock_devices,
            "without_effect": (*given["without_effect"], *used_variables(environ), *preferred),
        }

    def _time_slicing(self, root: Mapping[str, Any], resource: str) -> TimeSlicing:
        with self._noting():
            return read_time_slicing(root, resource)
        return TimeSlicing()

    @contextmanager
    def _noting(self, path: str = "") -> Iterator[None]:
        """Note the problems of the file at *path* that a block raises."""
        try:
            yield
        except ConfigError as error:
            self._problems += error.in_file(path).problems if path else error.problems

    def _check(self, device_config: DeviceConfig, node: NodeConfig) -> None:
        """Report settings that do not go together."""
        self._refuse_mps_sharing()
        self._check_kind()
        most = most_replicas(1, self._given["replica_ids"])
        if not 1 <= node.nvidia.device_split_count <= most:
            self._problems.append(
                f"nvidia.deviceSplitCount: {node.nvidia.device_split_count} is not in 1 to {most}: the kubelet reads a "
                f"list of at most {LIST_BYTES} bytes, all devices together"
            )
        if not node.nvidia.resource_count_name and device_config != DeviceConfig():
            self._problems.append("nvidia.resourceCountName: is empty, so there is nothing to register")

    def _check_kind(self) -> None:
        """Report what a Node of kind `dra` does not offer."""
        if self._given["node_kind"] != DRA:
            return
        if self._given["mig_strategy"] != static.NONE:
            self._problems.append(
                "--mig-strategy: must be none with --node-kind=dra, which offers no instances that an administrator "
                "made; use operatingmode mig, by which claims make them, or --node-kind=plugin"
            )
        if self._given["compute_enforcement"] != BY_LIBRARY:
            self._problems.append(
                "--compute-enforcement: must be library with --node-kind=dra: root may change a namespace of MPS, and "
                "the plugin does not hear of Pods that use a prepared claim later"
            )

    def _warnings(self, node: NodeConfig, node_name: str) -> Iterator[str]:
        """Yield a sentence for each part of the files that has no effect."""
        known = {described.key for _, described in settings_of(Config)}
        yield from used_keys(self._file, known)
        yield from used_keys(self._named.root, known)
        yield from self._named.warnings
        has_root, has_server = bool(self._given["mps_root"]), self._given["compute_enforcement"] != BY_LIBRARY
        if node.operating_mode == MPS and not (has_root or has_server):
            names_none = "--compute-enforcement is library, and --mps-root names no MPS daemon"
            yield f"operatingmode of Node {node_name}: mps means hami-core: {names_none}"
        if node.operating_mode != MPS:
            without_mode = f"has no effect: operatingmode of Node {node_name} is not mps"
            yield from (f"--mps-root: {without_mode}",) if has_root else ()
            yield from (f"--compute-enforcement: {without_mode}",) if has_server else ()
        elif has_root and has_server:
            yield "--mps-root: has no effect: by --compute-enforcement the plugin keeps a daemon of its own"

    def _device_config(self, path: str) -> DeviceConfig:
        if not path:
            self._problems.append("--config-file: is required; it names the resources to offer")
            return DeviceConfig()
        text = self._texts[path]
        if isinstance(text, Unreadable):
            self._problems.append(f"--config-file {path}: {text.reason}; it must be a device config, YAML")
            return DeviceConfig()
        config = DeviceConfig()
        with self._noting(path):
            config = load_device_config(text)
            try:
                root = plain(text)
            except YamlError as error:
                raise ConfigError((str(error),)) from error
            self._file = root if isinstance(root, dict) else {}
        return config

    def _overrides(self, path: str) -> NodeOverrides:
        text = self._texts[path]
        if isinstance(text, Unreadable):
            if not text.is_missing:
                self._problems.append(f"--node-config-file {path}: {text.reason}; it must be JSON, or missing")
            return NodeOverrides()
        with self._noting(path):
            return load_node_overrides(text)
        return NodeOverrides()

    def _read_named(self, node_name: str) -> str:
        """Read the config that the label chooses, and return its name; empty if there is none."""
        given = self._given
        folder = given["named_folder"].rstrip("/")
        if not folder or self._label is None:
            return ""
        names = {path.removeprefix(f"{folder}/") for path in self._texts if path.startswith(f"{folder}/")}
        try:
            name = choose_name(self._label, names, given["default_config"], given["fallback_strategies"])
        except ConfigError as error:
            self._problems += [
                f"Node label {given['node_label']}={self._label!r}, --config-file-srcdir {folder}: {problem}"
                for problem in error.problems
            ]
            return ""
        text = self._texts[f"{folder}/{name}"] if name else ""
        if isinstance(text, Unreadable):
            self._problems.append(f"{folder}/{name}: {text.reason}; it must be YAML")
            return name
        with self._noting(f"{folder}/{name}"):
            self._named = read_named(text, node_name)
        return name

    def _from_file(self, key: tuple[str, ...]) -> str:
        found = (_at(root, key) for root in (self._named.root, self._file))
        node: Any = next((value for value in found if value is not None), None)
        if isinstance(node, list):
            return ",".join(map(str, node))
        if isinstance(node, bool):
            return str(node).lower()
        return "" if node is None else str(node)

    def _mock_devices(self, path: str, node_name: str) -> tuple[MockDevice, ...]:
        text = self._texts[path] if path else ""
        if isinstance(text, Unreadable):
            self._problems.append(f"--mock-devices {path}: {text.reason}; it must be YAML")
            return ()
        with self._noting(path):
            return read_mock_devices(text, node_name) if path else ()
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
    is_scaled = node.operating_mode != MIG
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
        claim_uuids=node.claim_uuids,
        claim_indices=node.claim_indices,
    )

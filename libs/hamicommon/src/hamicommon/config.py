"""
The device config: HAMi's YAML, as its chart renders it, as frozen values with every error reported at once.

A section that is absent leaves its resource names empty, which match nothing. Inside a section, an absent key has the
chart's default. Owns the keys, their ranges and what became of keys of older versions.
Neighbours: `config_schema` reads nodes into values, `node_overrides` is the other file, one Node's exceptions.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/charts/hami/templates/scheduler/device-configmap.yaml
"""
# ruff: noqa: RUF009 - `key` is this project's `dataclasses.field`, and every default is frozen

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from hamicommon.config_schema import Key, Report, key, read_mapping
from hamicommon.config_yaml import Mapping, Scalar, Sequence, YamlError, read
from hamicommon.errors import HamiError
from hamicommon.quantity import INT32_MAX

_RESOURCE_NAME = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9._/-]*[a-zA-Z0-9])?")
_MIG_PROFILE = re.compile(r"[0-9]+g\..+")
_FOR_THE_PLUGIN = "the vendor's own device plugin reads it"
_WHOLE_FILE = "(file): "
"""How a problem begins that is no single key's."""


class ConfigError(HamiError):
    """A configuration has errors; `problems` holds each as `path: reason`."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("configuration: " + "; ".join(problems))
        self.problems = problems

    def in_file(self, path: str) -> "ConfigError":
        """Return the same error of a text that was read from *path*, which each problem names."""
        return ConfigError(tuple(f"{path}: {problem.removeprefix(_WHOLE_FILE)}" for problem in self.problems))


@dataclass(frozen=True, slots=True)
class Unreadable:
    """What a file has in the place of a text."""

    reason: str
    is_missing: bool = False


Texts = dict[str, str | Unreadable]
"""What is in files, by path."""


def _resource_name(text: str) -> str | None:
    if text and (len(text) > 317 or not _RESOURCE_NAME.fullmatch(text)):
        return f"{text[:40]!r} is not a resource name such as nvidia.com/gpu"
    return None


def _mig_profile(text: str) -> str | None:
    return None if _MIG_PROFILE.fullmatch(text) else f"{text[:40]!r} is not a MIG profile such as 1g.10gb"


@dataclass(frozen=True, slots=True)
class MigProfileRule:
    """Which MIG profiles may be cut from some models."""

    models: tuple[str, ...] = key("models", ())
    """As the driver names them."""
    profiles: tuple[str, ...] = key("profiles", (), check=_mig_profile)
    """As 1g.10gb."""


@dataclass(frozen=True, slots=True)
class NvidiaConfig:
    """The `nvidia` section."""

    resource_count_name: str = key("resourceCountName", "", check=_resource_name)
    resource_memory_name: str = key("resourceMemoryName", "", check=_resource_name)
    resource_memory_percentage_name: str = key("resourceMemoryPercentageName", "", check=_resource_name)
    resource_core_name: str = key("resourceCoreName", "", check=_resource_name)
    resource_priority_name: str = key("resourcePriorityName", "", check=_resource_name)
    overwrite_env: bool = key("overwriteEnv", False)
    """Hide every device from the containers of a Pod that ask for none."""
    default_memory_mib: int = key("defaultMemory", 0, least=0, most=INT32_MAX)
    """What a request without memory gets; 0 is the whole device. `memory_factor` does not apply."""
    default_core_percent: int = key("defaultCores", 0, least=0, most=100)
    """Percent for a request that says nothing of its time."""
    default_device_count: int = key("defaultGPUNum", 1, least=0, most=INT32_MAX)
    """Devices of a request that names only memory or cores; 0 leaves such a request unmanaged."""
    memory_factor: int = key("memoryFactor", 1, least=0, most=INT32_MAX)
    """MiB per unit of requested memory; 0 counts as 1."""
    disable_core_limit: bool = key("disableCoreLimit", False)
    """Hold no limit on time, on any Node."""
    gpu_core_policy: str = key("gpuCorePolicy", "default", choices=("default", "force", "disable", ""))
    """When the limit on time holds: `default` beside others, `force` always, `disable` never."""
    runtime_class_name: str = key("runtimeClassName", "")
    """RuntimeClass of Pods with a share that name none."""
    mig_profile_allowlist: tuple[MigProfileRule, ...] = key(
        "migProfileAllowlist",
        (),
        without_effect="HAMi's device plugin reads it, and the scheduler what that one registers",
    )
    """MIG profiles that may be cut, by model."""
    device_split_count: int = key("deviceSplitCount", 10, least=1, most=INT32_MAX)
    """Containers that may share one device."""
    device_memory_scaling: float = key("deviceMemoryScaling", 1.0, least=1e-6, most=1000)
    """How many times the memory a device has is offered."""
    device_core_scaling: float = key("deviceCoreScaling", 1.0, least=1e-6, most=1000)
    """How many times the time a device has is offered."""
    pre_configured_device_memory_mib: int = key("preConfiguredDeviceMemory", 0, least=0, most=INT32_MAX)
    """Memory of a device whose driver cannot tell; 0: none known."""
    lib_cuda_log_level: int = key("libCudaLogLevel", 1, least=0, most=9, quoted_number=True)
    """What the library prints: 0 errors only, 4 everything."""
    enable_numa_topology: bool = key("enableNumaTopology", False)
    """Tell the kubelet the devices' NUMA nodes."""


@dataclass(frozen=True, slots=True)
class CambriconConfig:
    """The `cambricon` section."""

    resource_count_name: str = key("resourceCountName", "", check=_resource_name)
    resource_memory_name: str = key("resourceMemoryName", "", check=_resource_name)
    resource_core_name: str = key("resourceCoreName", "", check=_resource_name)


@dataclass(frozen=True, slots=True)
class HygonConfig:
    """The `hygon` section."""

    resource_count_name: str = key("resourceCountName", "", check=_resource_name)
    resource_memory_name: str = key("resourceMemoryName", "", check=_resource_name)
    resource_core_name: str = key("resourceCoreName", "", check=_resource_name)
    memory_factor: int = key("memoryFactor", 1, least=0, most=INT32_MAX)
    """MiB per unit of requested memory; 0 counts as 1."""


@dataclass(frozen=True, slots=True)
class MetaxConfig:
    """The `metax` section: whole devices (count) and shared ones (vcount, vmemory, vcore)."""

    resource_count_name: str = key("resourceCountName", "", check=_resource_name)
    resource_vcount_name: str = key("resourceVCountName", "", check=_resource_name)
    resource_vmemory_name: str = key("resourceVMemoryName", "", check=_resource_name)
    resource_vcore_name: str = key("resourceVCoreName", "", check=_resource_name)
    sgpu_topology_aware: bool = key("sgpuTopologyAware", False)
    """Keep linked devices together, also for Pods that do not say."""


@dataclass(frozen=True, slots=True)
class EnflameConfig:
    """The `enflame` section: whole devices (gcu) and shared ones (drs)."""

    resource_gcu_name: str = key("resourceNameGCU", "", check=_resource_name)
    resource_drs_name: str = key("resourceNameDRSGCU", "", check=_resource_name)
    resource_memory_name: str = key("resourceNameGCUMemory", "", check=_resource_name)
    resource_core_name: str = key("resourceNameGCUCore", "", check=_resource_name)
    legacy_resource_vgcu_name: str = key("resourceNameVGCU", "", check=_resource_name)
    """Before v2.10; names the shared devices where resourceNameDRSGCU is absent."""
    legacy_resource_vgcu_percentage_name: str = key(
        "resourceNameVGCUPercentage", "", check=_resource_name, without_effect="2.10 asks by resourceNameGCUCore"
    )


@dataclass(frozen=True, slots=True)
class MthreadsConfig:
    """The `mthreads` section."""

    resource_count_name: str = key("resourceCountName", "", check=_resource_name)
    resource_memory_name: str = key("resourceMemoryName", "", check=_resource_name)
    resource_core_name: str = key("resourceCoreName", "", check=_resource_name)


@dataclass(frozen=True, slots=True)
class IluvatarConfig:
    """One chip of the `iluvatars` list."""

    chip_name: str = key("chipName", "", without_effect=_FOR_THE_PLUGIN)
    common_word: str = key("commonWord", "")
    resource_count_name: str = key("resourceCountName", "", check=_resource_name)
    resource_memory_name: str = key("resourceMemoryName", "", check=_resource_name)
    resource_core_name: str = key("resourceCoreName", "", check=_resource_name)


@dataclass(frozen=True, slots=True)
class KunlunConfig:
    """The `kunlun` section: whole devices (count) and shared ones (vcount, vmemory)."""

    resource_count_name: str = key("resourceCountName", "", check=_resource_name)
    resource_vcount_name: str = key("resourceVCountName", "", check=_resource_name)
    resource_vmemory_name: str = key("resourceVMemoryName", "", check=_resource_name)


@dataclass(frozen=True, slots=True)
class AwsNeuronConfig:
    """The `awsneuron` section."""

    resource_count_name: str = key("resourceCountName", "", check=_resource_name)
    resource_core_name: str = key("resourceCoreName", "", check=_resource_name)


@dataclass(frozen=True, slots=True)
class AmdConfig:
    """The `amd` section."""

    resource_count_name: str = key("resourceCountName", "", check=_resource_name)
    resource_memory_name: str = key("resourceMemoryName", "", check=_resource_name)
    resource_core_name: str = key("resourceCoreName", "", check=_resource_name)


@dataclass(frozen=True, slots=True)
class CountConfig:
    """A section that names whole devices only: `vastai`, `biren`."""

    resource_count_name: str = key("resourceCountName", "", check=_resource_name)


@dataclass(frozen=True, slots=True)
class AscendTemplate:
    """One size an Ascend chip can be cut to."""

    name: str = key("name", "")
    memory_mib: int = key("memory", 0, least=0, most=INT32_MAX)
    ai_core: int = key("aiCore", 0, least=0, most=INT32_MAX, without_effect=_FOR_THE_PLUGIN)
    ai_cpu: int = key("aiCPU", 0, least=0, most=INT32_MAX, without_effect=_FOR_THE_PLUGIN)


@dataclass(frozen=True, slots=True)
class AscendChipConfig:
    """One chip of `vnpus.configs`; templates are in order of memory."""

    chip_name: str = key("chipName", "", without_effect=_FOR_THE_PLUGIN)
    common_word: str = key("commonWord", "")
    resource_count_name: str = key("resourceName", "", check=_resource_name)
    resource_memory_name: str = key("resourceMemoryName", "", check=_resource_name)
    resource_core_name: str = key("resourceCoreName", "", check=_resource_name)
    memory_allocatable_mib: int = key("memoryAllocatable", 0, least=0, most=INT32_MAX)
    memory_capacity_mib: int = key("memoryCapacity", 0, least=0, most=INT32_MAX)
    memory_factor: int = key("memoryFactor", 1, least=0, most=INT32_MAX)
    ai_core: int = key("aiCore", 0, least=0, most=INT32_MAX, without_effect=_FOR_THE_PLUGIN)
    ai_cpu: int = key("aiCPU", 0, least=0, most=INT32_MAX, without_effect=_FOR_THE_PLUGIN)
    runtime_class_name: str = key("runtimeClassName", "")
    overwrite_env: bool = key("overwriteEnv", False)
    super_pod: bool = key("superPod", False)
    templates: tuple[AscendTemplate, ...] = key("templates", ())


@dataclass(frozen=True, slots=True)
class AscendConfig:
    """The `vnpus` section."""

    hami_vnpu_core: bool = key("hamiVnpuCore", False)
    """Whether Nodes that do not say take Pods with `huawei.com/vnpu-mode: hami-core`."""
    chips: tuple[AscendChipConfig, ...] = key("configs", ())
    """The chips, and the sizes each can be cut to."""


@dataclass(frozen=True, slots=True)
class DeviceConfig:
    """
    The whole file.

    `warnings` names what is odd, `ignored` what others read, `old_forms` what is read and would be written otherwise
    today, each as `path: reason`.
    """

    nvidia: NvidiaConfig = key("nvidia", NvidiaConfig())
    cambricon: CambriconConfig = key("cambricon", CambriconConfig())
    hygon: HygonConfig = key("hygon", HygonConfig())
    metax: MetaxConfig = key("metax", MetaxConfig())
    enflame: EnflameConfig = key("enflame", EnflameConfig())
    mthreads: MthreadsConfig = key("mthreads", MthreadsConfig())
    iluvatars: tuple[IluvatarConfig, ...] = key("iluvatars", ())
    """The chips."""
    kunlun: KunlunConfig = key("kunlun", KunlunConfig())
    awsneuron: AwsNeuronConfig = key("awsneuron", AwsNeuronConfig())
    amd: AmdConfig = key("amd", AmdConfig())
    vastai: CountConfig = key("vastai", CountConfig())
    biren: CountConfig = key("biren", CountConfig())
    ascend: AscendConfig = key("vnpus", AscendConfig())
    warnings: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    old_forms: tuple[str, ...] = ()

    def enabled(self, *, has_ascend: bool, has_iluvatar: bool) -> "DeviceConfig":
        """Return it without the vendors that HAMi has only where a flag says so."""
        return replace(
            self,
            ascend=self.ascend if has_ascend else replace(self.ascend, chips=()),
            iluvatars=self.iluvatars if has_iluvatar else (),
        )


_OTHER_READERS = ("version", "flags", "resources", "sharing", "imex")
"""Top-level keys of NVIDIA's own plugin configuration, which may share the file."""


def load_device_config(text: str) -> DeviceConfig:
    """
    Return the device config in *text*.

    Raises:
        ConfigError: it is not YAML, or some values are wrong; `problems` holds all of them.
    """
    report = Report()
    config = _load(text, report)
    if not report.problems and config == DeviceConfig():
        report.problem("(file)", "no vendor section; at least one, such as nvidia, must be there")
    if report.problems:
        raise ConfigError(tuple(report.problems))
    return replace(
        config,
        warnings=tuple(report.warnings),
        ignored=tuple(report.ignored),
        old_forms=tuple(report.old_forms),
    )


def _load(text: str, report: Report) -> DeviceConfig:
    try:
        root = read(text)
    except YamlError as error:
        report.problem("(file)", str(error))
        return DeviceConfig()
    if root is None or (isinstance(root, Scalar) and root.is_null):
        return DeviceConfig()
    if isinstance(root, Mapping):
        _translate_old_forms(root, report)
    config = read_mapping(DeviceConfig, root, "", report, handled=_OTHER_READERS)
    if not report.problems:
        _check(config, report)
    _check_names(config, report)
    return _sorted_templates(config)


def _translate_old_forms(root: Mapping, report: Report) -> None:
    """Bring what older versions wrote to the present form, or say what to write instead."""
    if "iluvatar" in root.items:
        report.problem("iluvatar", "one object until v2.7.0; write a list under iluvatars, one entry a chip")
        del root.items["iluvatar"]
    vnpus = root.items.get("vnpus")
    if isinstance(vnpus, Sequence):
        report.old_form("vnpus", "a list until v2.8; read as vnpus.configs")
        root.items["vnpus"] = Mapping(vnpus.line, {"configs": vnpus})
    nvidia = root.items.get("nvidia")
    if isinstance(nvidia, Mapping) and "knownMigGeometries" in nvidia.items:
        report.warn("nvidia.knownMigGeometries", "ignored since v2.10; write migProfileAllowlist")
        del nvidia.items["knownMigGeometries"]


def _check(config: DeviceConfig, report: Report) -> None:
    """Report what is wrong between fields."""
    for index, rule in enumerate(config.nvidia.mig_profile_allowlist):
        for field in fields(rule):
            if not getattr(rule, field.name):
                report.problem(f"nvidia.migProfileAllowlist[{index}].{field.name}", "must name at least one")
    _check_words("vnpus.configs", [chip.common_word for chip in config.ascend.chips], report)
    _check_words("iluvatars", [chip.common_word for chip in config.iluvatars], report)


def _check_names(config: DeviceConfig, report: Report) -> None:
    """Report resource names that stand in two places: what a container asks by them would be asked twice."""
    places: dict[str, str] = {}
    for path, name in _resource_names(config):
        if path == "enflame.resourceNameVGCU" and config.enflame.resource_drs_name:
            continue
        if name in places:
            report.problem(path, f"{name!r} is the name of {places[name]}, too; each resource has a name of its own")
        places.setdefault(name, path)


def _resource_names(section: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every resource name in *section* that has an effect, with its path."""
    for field in fields(section):
        rules: Key | None = field.metadata.get("key")
        if rules is None or rules.without_effect:
            continue
        value, place = getattr(section, field.name), f"{path}{rules.name}"
        if rules.check is _resource_name and value:
            yield place, value
        elif is_dataclass(value):
            yield from _resource_names(value, f"{place}.")
        elif isinstance(value, tuple):
            for index, item in enumerate(value):
                if is_dataclass(item):
                    yield from _resource_names(item, f"{place}[{index}].")


def _check_words(path: str, words: list[str], report: Report) -> None:
    """Report chips whose annotation keys, which are made of the word, would be empty or one another's."""
    for index, word in enumerate(words):
        if not word:
            report.problem(f"{path}[{index}].commonWord", "must not be empty; annotation keys are made of it")
        elif word in words[:index]:
            report.problem(f"{path}[{index}].commonWord", f"{word!r} is another entry's, too")


def _sorted_templates(config: DeviceConfig) -> DeviceConfig:
    chips = tuple(
        replace(chip, templates=tuple(sorted(chip.templates, key=lambda template: template.memory_mib)))
        for chip in config.ascend.chips
    )
    return replace(config, ascend=replace(config.ascend, chips=chips))

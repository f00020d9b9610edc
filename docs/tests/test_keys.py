"""
Every key of HAMi's device config and every flag of its scheduler works here, or is reported as without effect.
"""

import dataclasses
import re
import typing
from functools import cache
from typing import Any

import pytest

from hamicommon.config.device_config import SECTIONS, load_device_config
from hamicommon.runtime.program import hami_flags
from hamicommon.wire.go.yaml_reader import Key

from .sources import PYTHON

KEYS = {
    "nvidia": "resourceCountName resourceMemoryName resourceCoreName resourceMemoryPercentageName resourcePriorityName"
    " overwriteEnv defaultMemory defaultCores defaultGPUNum memoryFactor disableCoreLimit gpuCorePolicy"
    " runtimeClassName migProfileAllowlist knownMigGeometries deviceSplitCount deviceMemoryScaling deviceCoreScaling"
    " preConfiguredDeviceMemory libCudaLogLevel enableNumaTopology",
    "cambricon": "resourceCountName resourceMemoryName resourceCoreName",
    "hygon": "resourceCountName resourceMemoryName resourceCoreName memoryFactor",
    "metax": "resourceCountName resourceVCountName resourceVMemoryName resourceVCoreName sgpuTopologyAware",
    "enflame": "resourceNameGCU resourceNameDRSGCU resourceNameGCUMemory resourceNameGCUCore resourceNameVGCU"
    " resourceNameVGCUPercentage",
    "mthreads": "resourceCountName resourceMemoryName resourceCoreName",
    "iluvatars": "chipName commonWord resourceCountName resourceMemoryName resourceCoreName",
    "kunlun": "resourceCountName resourceVCountName resourceVMemoryName",
    "awsneuron": "resourceCountName resourceCoreName",
    "amd": "resourceCountName resourceMemoryName resourceCoreName",
    "vastai": "resourceCountName",
    "biren": "resourceCountName",
    "vnpus": "hamiVnpuCore configs",
    "vnpus.configs": "chipName commonWord resourceName resourceMemoryName resourceCoreName memoryAllocatable"
    " memoryCapacity memoryFactor aiCore aiCPU runtimeClassName overwriteEnv superPod templates",
    "vnpus.configs.templates": "name memory aiCore aiCPU",
}
"""Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/charts/hami/templates/scheduler/device-configmap.yaml"""

FLAGS = """
http_bind cert_file key_file scheduler-name node-scheduler-policy gpu-scheduler-policy metrics-bind-address
node-label-selector kube-qps kube-burst kube-timeout profiling node-lock-timeout node-lock-retry-timeout
force-overwrite-default-scheduler leader-elect leader-elect-resource-name leader-elect-resource-namespace legacy-metrics
device-config-file debug enable-ascend enable-iluvatar cambricon-mlu-name cambricon-mlu-memory cambricon-mlu-cores
dcu-name dcu-memory dcu-cores mthreads-name mthreads-memory mthreads-cores metax-name metax-vcount metax-vcore
metax-vmemory sgpu-topology-aware enflame-gcu-resource-name enflame-drs-gcu-resource-name
enflame-gcu-memory-resource-name enflame-gcu-core-resource-name kunlun-name kunlun-vcount kunlun-vmemory
"""
"""Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/cmd/scheduler/main.go"""


@cache
def readers() -> str:
    """Return the sources of all readers of the config, as one text. To check a value is not to read it."""
    schema = {"config.py", "config_schema.py", "config_yaml.py"}
    sources = (
        path.read_text()
        for folder in PYTHON
        for path in folder.rglob("*.py")
        if path.parent != PYTHON[-1] / "hamicommon" or path.name not in schema
    )
    return "\n".join(re.sub(r"\ndef _check\(.*?\n\n\n", "\n", source, flags=re.DOTALL) for source in sources)


def fields_of(section: str) -> dict[str, tuple[str, Key]]:
    """Return each key of a section, with its field and rules."""
    kind: Any = SECTIONS
    for word in section.split("."):
        field = next(field for field in dataclasses.fields(kind) if field.metadata["key"].name == word)
        kind = typing.get_type_hints(kind)[field.name]
        kind = typing.get_args(kind)[0] if typing.get_origin(kind) is tuple else kind
    keys = [(field.name, field.metadata["key"]) for field in dataclasses.fields(kind) if "key" in field.metadata]
    return {key.name: (name, key) for name, key in keys}


@pytest.mark.parametrize(("section", "name"), [(section, name) for section in KEYS for name in KEYS[section].split()])
def test_key_has_an_effect_or_says_that_it_has_none(section: str, name: str) -> None:
    """A key without effect must say so, and a key with an effect must not."""
    if name == "knownMigGeometries":
        text = "nvidia: {resourceCountName: nvidia.com/gpu, knownMigGeometries: []}"
        assert ["nvidia.knownMigGeometries: ignored since v2.10; write migProfileAllowlist"] == list(
            load_device_config(text).warnings
        )
        return
    field, key = fields_of(section)[name]

    assert bool(key.without_effect) != bool(re.search(rf"\.{field}\b", readers()))


def test_no_key_is_ours_alone() -> None:
    """Our keys are HAMi's keys."""
    for section, names in KEYS.items():
        assert set(names.split()) - {"knownMigGeometries"} == set(fields_of(section))


def test_key_without_effect_is_reported_once() -> None:
    """A list of chips gives one warning, not one for each chip."""
    chips = ", ".join(f"{{commonWord: c{number}, chipName: x, aiCore: 4}}" for number in range(3))

    assert (
        "vnpus.configs[].chipName: the vendor's own device plugin reads it",
        "vnpus.configs[].aiCore: the vendor's own device plugin reads it",
    ) == load_device_config(f"vnpus: {{configs: [{chips}]}}").ignored


def test_every_flag_is_known() -> None:
    """No flag of HAMi is unknown. Each service decides whether it has an effect."""
    known = {*hami_flags.SCHEDULER_FLAGS, *hami_flags.VENDOR_FLAGS}

    assert set() == {f"--{name}" for name in FLAGS.split()} - known

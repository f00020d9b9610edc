"""
`sharing.timeSlicing` of NVIDIA's plugin: how many containers share a device.
"""

from pathlib import Path

import grpc
import pytest
from device_plugin_apiserver import ApiServer
from device_plugin_kubelet import Kubelet
from device_plugin_process import A100, T4, PluginProcess, a_node, a_pod, needs_fake_driver

from hami_device_plugin.config.loader import load
from hami_device_plugin.config.settings import Config, parse_arguments
from hami_device_plugin.config.time_slicing import REPLICAS_MAX
from hamicommon.config.device_config import ConfigError, Texts

NVIDIA = "nvidia: {resourceCountName: nvidia.com/gpu, deviceSplitCount: 10}\n"


def slicing(replicas: object = 4, more: str = "", of_resource: str = "") -> str:
    """Return the section with *replicas* of nvidia.com/gpu, and *more* in it."""
    listed = f"[{{name: nvidia.com/gpu, replicas: {replicas}{of_resource}}}]"
    return f"sharing: {{timeSlicing: {{resources: {listed}{more}}}}}\n"


def a_config(text: str, named: str = "", overrides: str = "") -> Config:
    """Return the settings of Node n1 whose device config has *text* below the section nvidia."""
    texts: Texts = {"/c": NVIDIA + text, "/config/config.json": overrides, "/named/a": named}
    given = parse_arguments(["--config-file=/c", "--config-file-srcdir=/named/"])
    return load(given, {"NODE_NAME": "n1"}, texts, "a")


def test_replicas_divide_each_device() -> None:
    """As `nvidia.deviceSplitCount` does, over which it wins in the same file."""
    assert 10 == a_config("").sharing.split_count
    assert 4 == a_config(slicing(4)).sharing.split_count


def test_closest_source_of_replicas_wins() -> None:
    """An entry for the Node, then the named config, then the device config."""
    entry = '{"nodeconfig": [{"name": "n1", "devicesplitcount": 2}]}'

    assert 5 == a_config(slicing(4), slicing(5)).sharing.split_count
    assert 6 == a_config(slicing(4), slicing(5) + "nvidia: {deviceSplitCount: 6}").sharing.split_count
    assert 2 == a_config(slicing(4), slicing(5), entry).sharing.split_count


def test_section_without_resources_divides_nothing() -> None:
    """The other settings hold."""
    assert 10 == a_config("sharing: {timeSlicing: {}}\n").sharing.split_count
    assert 10 == a_config("sharing: {timeSlicing: {resources: []}}\n").sharing.split_count
    assert a_config("sharing: {timeSlicing: {failRequestsGreaterThanOne: true}}\n").is_one_replica_at_most


def test_parts_without_effect_are_named() -> None:
    """The scheduler knows one resource, and divides all devices of a Node alike."""
    config = a_config(
        "sharing: {timeSlicing: {renameByDefault: true, resources: [{name: nvidia.com/gpu, replicas: 3, devices: [0], "
        "rename: a}, {name: nvidia.com/mig-1g.5gb, replicas: 2, devices: all}]}}\n"
    )

    assert 3 == config.sharing.split_count
    assert [
        "resources[0].rename: has no effect: the scheduler knows the resource as nvidia.com/gpu",
        "resources[0].devices: has no effect: all devices of a Node are divided alike",
        "resources[1]: has no effect: this plugin shares nvidia.com/gpu, not nvidia.com/mig-1g.5gb",
        "renameByDefault: has no effect: the scheduler knows the resource as nvidia.com/gpu",
    ] == [warning.removeprefix("sharing.timeSlicing.") for warning in config.warnings if "timeSlicing" in warning]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param(slicing(0), "resources[0].replicas: must be a whole number from 1 on, not '0'", id="none"),
        pytest.param(slicing("many"), "resources[0].replicas: must be a whole number from 1 on, not 'many'", id="word"),
        pytest.param(slicing("true"), "resources[0].replicas: must be a whole number from 1 on, not 'True'", id="flag"),
        pytest.param(slicing(REPLICAS_MAX + 1), "resources[0].replicas: must be a whole number from 1 on", id="large"),
        pytest.param(
            "sharing: {timeSlicing: {resources: [{replicas: 2}]}}",
            "resources[0].name: must be the name of a resource, such as nvidia.com/gpu",
            id="no name",
        ),
        pytest.param(
            slicing(more=", failRequestsGreaterThanOne: 1"),
            "failRequestsGreaterThanOne: must be true or false, not '1'",
            id="no flag",
        ),
        pytest.param(slicing(more=", renameByDefault: no-way"), "renameByDefault: must be true or false", id="rename"),
    ],
)
def test_wrong_values_are_problems_that_name_their_place(text: str, problem: str) -> None:
    """NVIDIA's plugin does not start with them either."""
    with pytest.raises(ConfigError) as error:
        a_config(text)

    assert f"sharing.timeSlicing.{problem}" in error.value.problems[0]


@pytest.mark.parametrize(
    "text", ["sharing: [1]", "sharing: {timeSlicing: 3}", "sharing: {timeSlicing: {resources: [gpu]}}"]
)
def test_wrong_shapes_are_one_problem(text: str) -> None:
    """The sentence says what would be right."""
    with pytest.raises(ConfigError, match=r"sharing\.timeSlicing: must be a mapping with a list under resources"):
        a_config(text)


@needs_fake_driver
@pytest.mark.parametrize(("allocation", "phase"), [("identity", "allocating"), ("lock", "failed")])
async def test_container_with_several_replicas_is_refused_if_the_config_says_so(
    host: Path, api: ApiServer, kubelet: Kubelet, allocation: str, phase: str
) -> None:
    """The kubelet has two replicas of each device and hands out one. Under the lock the refused Pod is marked."""
    api.put("nodes", a_node())
    api.put("pods", a_pod("one", f"{A100},NVIDIA,700,5:;", "main=1"))
    process = PluginProcess(host, api, kubelet, f"--allocation={allocation}")
    process.device_config += slicing(2, ", failRequestsGreaterThanOne: true")
    async with process as plugin:
        await plugin.serving()
        offered = set(kubelet.devices)
        await kubelet.allocate("uid-one", "one", "main", f"{A100}-0")
        await kubelet.pre_start(f"{A100}-0")
        await plugin.until(lambda: "success" == api.annotations("pods", "default", "one")["hami.io/bind-phase"])
        api.put("pods", a_pod("one", f"{A100},NVIDIA,700,5:;", "main=1") | {"status": {"phase": "Running"}})
        api.put("pods", a_pod("two", f"{A100},NVIDIA,700,5:{T4},NVIDIA,700,5:;", "main=2"))
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await kubelet.allocate("uid-two", "two", "main", f"{A100}-1", f"{T4}-0")

    assert {f"{uuid}-{number}" for uuid in (A100, T4) for number in range(2)} == offered
    assert (
        "2 replicas of shared devices are asked for, and a container may have 1 here, because of "
        "sharing.timeSlicing.failRequestsGreaterThanOne"
    ) == refusal.value.details()
    assert phase == api.annotations("pods", "default", "two")["hami.io/bind-phase"]

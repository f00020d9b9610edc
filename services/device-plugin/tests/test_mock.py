"""
A Node whose devices do not exist.
"""

import json
from pathlib import Path

import pytest
from device_plugin_apiserver import ApiServer
from device_plugin_kubelet import Kubelet
from device_plugin_process import NODE, PluginProcess, a_node, a_pod
from hypothesis import given
from hypothesis import strategies as st

from hami_device_plugin.decide.probe.mock import read_mock_devices
from hamicommon.config.device_config import ConfigError

REGISTER = "hami.io/node-nvidia-register"
TWO = "- {name: NVIDIA L4, memoryMib: 23034, count: 2}\n- {name: Tesla T4, memoryMib: 16384}\n"


def test_devices_of_a_node_keep_their_uuids_and_differ_from_other_nodes() -> None:
    """One ConfigMap serves all Nodes."""
    here, again, there = (read_mock_devices(TWO, node) for node in ("a", "a", "b"))

    assert here == again
    assert 6 == len({device.uuid for device in (*here, *there)})
    assert [("NVIDIA L4", 23034), ("NVIDIA L4", 23034), ("Tesla T4", 16384)] == [
        (device.name, device.memory_mib) for device in here
    ]
    assert all(5 == device.uuid.count("-") and len("GPU-") + 36 == len(device.uuid) for device in here)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("", r"must be a list of devices, such as \[", id="empty"),
        pytest.param("- 4", r"\[0\]: must be a mapping with name and memoryMib", id="number"),
        pytest.param("- {memoryMib: 1}", r"\[0\]\.name: must be the name of a model", id="no name"),
        pytest.param("- {name: T4}", r"\[0\]\.memoryMib: must be a whole number from 1", id="no memory"),
        pytest.param("- {name: T4, memoryMib: 1, count: 0}", r"\[0\]\.count: .* from 1 to 64, not '0'", id="none"),
        pytest.param("- {name: T4, memoryMib: 1, cuont: 2}", r"\[0\]\.cuont: is not one of count, memoryMib", id="key"),
        pytest.param(
            "[{name: a, memoryMib: 1, count: 40}, {name: b, memoryMib: 1, count: 40}]", "more than 64", id="many"
        ),
        pytest.param("- 2026-13-01", "month must be in 1..12", id="date"),
        pytest.param("a: b: c", "line 1: mapping values are not allowed in this context", id="no YAML"),
    ],
)
def test_errors_name_the_place(text: str, problem: str) -> None:
    """And what would be right."""
    with pytest.raises(ConfigError, match=problem):
        read_mock_devices(text, "n1")


@pytest.mark.property
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["name", "memoryMib", "count", "x"]), inner),
    )
)
def test_any_text_gives_devices_or_problems(value: object) -> None:
    """Nothing else; there is at least one of either."""
    try:
        found: tuple[object, ...] = read_mock_devices(json.dumps(value), "n1")
    except ConfigError as error:
        found = error.problems

    assert found


async def test_pod_is_served_on_a_node_without_devices(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """It gets its limits, but no device and no driver. Another file offers other devices."""
    devices = host / "mock.yaml"
    devices.write_text(TWO)
    api.put("nodes", a_node())
    flags = (f"--mock-devices={devices}", "--device-list-strategy=envvar")
    async with PluginProcess(host, api, kubelet, *flags, LD_LIBRARY_PATH="/nowhere") as plugin:
        await plugin.serving()
        await plugin.until(lambda: REGISTER in api.annotations("nodes", "", NODE))
        inventory = json.loads(api.annotations("nodes", "", NODE)[REGISTER])
        assert [("NVIDIA L4", 23034), ("NVIDIA L4", 23034), ("NVIDIA-Tesla T4", 16384)] == [
            (device["type"], device["devmem"]) for device in inventory
        ]
        assert all(device["health"] for device in inventory)

        replica = f"{inventory[2]['id']}-0"
        assert {"Healthy"} == set(kubelet.devices.values())
        api.put("pods", a_pod("p", f"{inventory[2]['id']},NVIDIA,700,5:;", "main=1"))
        answer = await kubelet.allocate("uid-p", "p", "main", replica)
        await kubelet.pre_start(replica)
        env = plugin.environment(answer)
        assert ("700m", "void") == (env["CUDA_DEVICE_MEMORY_LIMIT_0"], env["NVIDIA_VISIBLE_DEVICES"])

        devices.write_text("- {name: NVIDIA L4, memoryMib: 23034}\n")
        await plugin.until(lambda: len(kubelet.devices) == 3)

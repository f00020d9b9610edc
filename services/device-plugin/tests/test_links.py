"""
The scores of the links between devices.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pynvml
import pytest
from device_plugin_apiserver import ApiServer
from device_plugin_kubelet import Kubelet
from device_plugin_process import (
    A100,
    DEADLINE_SECONDS,
    NODE,
    T4,
    PluginProcess,
    a_node,
    needs_fake_driver,
)
from hypothesis import given
from hypothesis import strategies as st

from hami_device_plugin.decide.probe.links import LinkedDevice, link_scores
from hamicommon.wire.pair_scores import decode_pair_scores
from testbed.driver.hardware import FakeDriver

SCORES = "hami.io/node-nvidia-score"

BUS = {f"gpu{number}": f"00000000:0{number + 1}:00.0" for number in range(4)}
SWITCH = "00000000:A0:00.0"


def linked(uuid: str, links: Mapping[str, int], *, switch_links: int = 0, **ancestors: int) -> LinkedDevice:
    """Return a device with that many NVLinks to others, and with *switch_links* to an NVSwitch."""
    remote = [BUS[other].lower() for other, count in links.items() for _ in range(count)] + [SWITCH] * switch_links
    return LinkedDevice(uuid, BUS[uuid], ancestors, tuple(remote), switch_links)


def pair(one: LinkedDevice, other: LinkedDevice) -> tuple[int, int]:
    """Return the scores of both directions."""
    scores = link_scores([one, other], {one.uuid, other.uuid}).scores
    return scores[one.uuid][other.uuid], scores[other.uuid][one.uuid]


def test_each_nvlink_counts_a_hundred() -> None:
    """Four devices, of which some are linked twice."""
    devices = [
        linked("gpu0", {"gpu1": 1, "gpu2": 1, "gpu3": 2}),
        linked("gpu1", {"gpu0": 1, "gpu2": 2, "gpu3": 1}),
        linked("gpu2", {"gpu0": 1, "gpu1": 2, "gpu3": 2}),
        linked("gpu3", {"gpu0": 2, "gpu1": 1, "gpu2": 2}),
    ]

    assert {
        "gpu0": {"gpu1": 100, "gpu2": 100, "gpu3": 200},
        "gpu1": {"gpu0": 100, "gpu2": 200, "gpu3": 100},
        "gpu2": {"gpu0": 100, "gpu1": 200, "gpu3": 200},
        "gpu3": {"gpu0": 200, "gpu1": 100, "gpu2": 200},
    } == link_scores(devices, set(BUS)).scores


@pytest.mark.parametrize(
    ("level", "score"),
    [
        pytest.param(0, 60, id="same board"),
        pytest.param(10, 50, id="single switch"),
        pytest.param(20, 40, id="several switches"),
        pytest.param(30, 30, id="host bridge"),
        pytest.param(40, 20, id="NUMA node"),
        pytest.param(50, 10, id="system"),
        pytest.param(60, 0, id="unknown"),
    ],
)
def test_near_devices_score_more(level: int, score: int) -> None:
    """By the nearest common ancestor on PCIe."""
    assert (score, score) == pair(linked("gpu0", {}, gpu1=level), linked("gpu1", {}, gpu0=level))


@pytest.mark.parametrize(("count", "score"), [(1, 110), (18, 1810), (19, 10), (36, 10)])
def test_impossible_numbers_of_nvlinks_count_nothing(count: int, score: int) -> None:
    """No device has more than 18 NVLinks."""
    ends = linked("gpu0", {"gpu1": count}, gpu1=50), linked("gpu1", {"gpu0": count}, gpu0=50)

    assert (score, score) == pair(*ends)


def test_nvswitch_links_every_pair_by_the_fewer_links() -> None:
    """The remote end is the switch, not the other device."""
    assert (1210, 1210) == pair(
        linked("gpu0", {}, switch_links=18, gpu1=50), linked("gpu1", {}, switch_links=12, gpu0=50)
    )
    assert (10, 10) == pair(linked("gpu0", {}, switch_links=18, gpu1=50), linked("gpu1", {}, gpu0=50))


def test_pair_that_the_devices_describe_differently_scores_0() -> None:
    """One of them does not see the NVLink; the pair is named once."""
    devices = [linked("gpu0", {"gpu1": 1}, gpu1=50), linked("gpu1", {}, gpu0=50), linked("gpu2", {})]
    result = link_scores(devices, set(BUS))

    assert (0, 0) == (result.scores["gpu0"]["gpu1"], result.scores["gpu1"]["gpu0"])
    assert (("gpu0", "gpu1"),) == result.asymmetric


def test_only_offered_devices_are_rated() -> None:
    """A filtered device is in neither dimension."""
    devices = [linked("gpu0", {}, gpu1=50), linked("gpu1", {}, gpu0=50)]

    assert {"gpu1": {}} == link_scores(devices, {"gpu1"}).scores


@pytest.mark.property
@given(
    st.lists(
        st.builds(
            LinkedDevice,
            uuid=st.sampled_from(sorted(BUS)),
            bus_id=st.sampled_from([*BUS.values(), "0000:01:00.0", ""]),
            ancestors=st.dictionaries(st.sampled_from(sorted(BUS)), st.integers(-1, 60)),
            remote_bus_ids=st.lists(st.sampled_from([*BUS.values(), SWITCH, ""]), max_size=20).map(tuple),
            switch_links=st.integers(0, 36),
        ),
        unique_by=lambda device: device.uuid,
    )
)
def test_every_pair_has_a_score_whatever_the_driver_says(devices: list[LinkedDevice]) -> None:
    """Between 0 and 1860, in both directions, and 0 for exactly what is named as asymmetric or unlinked."""
    result = link_scores(devices, set(BUS))

    for one in devices:
        assert {other.uuid for other in devices} - {one.uuid} == result.scores[one.uuid].keys()
        assert all(0 <= score <= 1860 for score in result.scores[one.uuid].values())
    for one_uuid, other_uuid in result.asymmetric:
        assert 0 == result.scores[one_uuid][other_uuid] == result.scores[other_uuid][one_uuid]
        assert (other_uuid, one_uuid) not in result.asymmetric


def written(api: ApiServer) -> dict[str, dict[str, int]]:
    """Return the scores in the Node's annotation; empty without one."""
    return decode_pair_scores(api.annotations("nodes", "", NODE).get(SCORES, "[]"))


@pytest.fixture
def driver(host: Path) -> FakeDriver:
    """Return the driver of a Node whose two devices are on different NUMA nodes."""
    (host / "hardware").mkdir()
    return FakeDriver(host / "hardware")


@needs_fake_driver
async def test_scores_are_written_and_written_again_when_only_they_are_missing(
    host: Path, api: ApiServer, kubelet: Kubelet
) -> None:
    """HAMi's plugin would wait for a change of the devices."""
    node: dict[str, Any] = api.put("nodes", a_node())
    async with PluginProcess(host, api, kubelet, ENABLE_TOPOLOGY_SCORE="true") as plugin:
        await plugin.until(lambda: {A100: {T4: 10}, T4: {A100: 10}} == written(api))
        carried = {**api.annotations("nodes", "", NODE)}
        del carried[SCORES]
        api.put("nodes", node | {"metadata": node["metadata"] | {"annotations": carried}})
        await plugin.until(lambda: {A100: {T4: 10}, T4: {A100: 10}} == written(api))


@needs_fake_driver
@pytest.mark.parametrize(
    ("ends", "ancestor", "expected"),
    [
        pytest.param(((A100, T4, 4), (T4, A100, 4)), "single", 450, id="direct"),
        pytest.param(((A100, "switch", 12), (T4, "switch", 6)), "system", 610, id="through a switch"),
        pytest.param(((A100, "switch", 12),), "node", 20, id="one end at a switch"),
    ],
)
async def test_links_of_the_driver_are_rated(
    host: Path,
    api: ApiServer,
    kubelet: Kubelet,
    driver: FakeDriver,
    ends: tuple[tuple[str, str, int], ...],
    ancestor: str,
    expected: int,
) -> None:
    """PCIe and NVLink together, the same in both directions."""
    for uuid, peer, count in ends:
        driver.connect(uuid, peer, count)
    driver.place(A100, T4, ancestor)
    api.put("nodes", a_node())
    async with PluginProcess(host, api, kubelet, ENABLE_TOPOLOGY_SCORE="true") as plugin:
        await plugin.until(lambda: {A100: {T4: expected}, T4: {A100: expected}} == written(api))

    assert [] == api.events("AsymmetricGPUP2PLink")


@needs_fake_driver
async def test_pair_with_links_in_one_direction_scores_0_with_an_event(
    host: Path, api: ApiServer, kubelet: Kubelet, driver: FakeDriver
) -> None:
    """The Event is HAMi's, and names both devices."""
    driver.connect(A100, T4, 2)
    api.put("nodes", a_node())
    async with PluginProcess(host, api, kubelet, ENABLE_TOPOLOGY_SCORE="true") as plugin:
        await plugin.until(lambda: {A100: {T4: 0}, T4: {A100: 0}} == written(api))
        await plugin.until(lambda: bool(api.events("AsymmetricGPUP2PLink")))

    [event] = api.events("AsymmetricGPUP2PLink")
    assert ("Warning", "Node", NODE) == (
        event["type"],
        event["involvedObject"]["kind"],
        event["involvedObject"]["name"],
    )
    assert event["message"].endswith(f"the pair scores 0: {A100} and {T4}")


@needs_fake_driver
async def test_device_whose_links_cannot_be_read_is_left_out_until_they_can(
    host: Path, api: ApiServer, kubelet: Kubelet, driver: FakeDriver
) -> None:
    """The other devices are rated all the same."""
    driver.fail(pynvml.NVML_ERROR_UNKNOWN, A100, call="nvmlDeviceGetNvLinkState")
    api.put("nodes", a_node())
    async with PluginProcess(host, api, kubelet, ENABLE_TOPOLOGY_SCORE="true") as plugin:
        await plugin.until(lambda: {T4: {}} == written(api))
        driver.recover(A100)
        await plugin.until(lambda: {A100: {T4: 10}, T4: {A100: 10}} == written(api))


@needs_fake_driver
async def test_alignment_prefers_the_linked_devices(
    host: Path, api: ApiServer, kubelet: Kubelet, driver: FakeDriver
) -> None:
    """Without an annotation of the Node: the preference reads the links for itself."""
    third = T4[:-1] + "2"
    driver.connect(A100, third, 2)
    driver.connect(third, A100, 2)
    api.put("nodes", a_node())
    plugin = PluginProcess(host, api, kubelet, "--shared-devices-allocation-policy=aligned")
    plugin.hardware += f"{third},Tesla T4,16384,1,00000000:03:00.0\n"
    async with plugin:
        await plugin.serving()
        wanted, free = [f"{A100}-0", f"{third}-0"], sorted(kubelet.devices)
        async with asyncio.timeout(DEADLINE_SECONDS):
            while wanted != await kubelet.preferred(free, 2):  # noqa: ASYNC110 - nothing tells when the links are read
                await asyncio.sleep(0.05)

    assert SCORES not in api.annotations("nodes", "", NODE)


@needs_fake_driver
async def test_scores_of_the_node_stay_unless_they_are_asked_for(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """As HAMi's plugin leaves them."""
    node = a_node(**{SCORES: "[]"})
    api.put("nodes", node)
    async with PluginProcess(host, api, kubelet, ENABLE_TOPOLOGY_SCORE="True") as plugin:
        await plugin.serving()
        await plugin.until(lambda: "hami.io/node-nvidia-register" in api.annotations("nodes", "", NODE))
        await asyncio.sleep(0.5)
        assert "[]" == api.annotations("nodes", "", NODE)[SCORES]

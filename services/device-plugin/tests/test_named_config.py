"""
Named configs, of which a label of the Node chooses one.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from device_plugin_apiserver import ApiServer
from device_plugin_kubelet import Kubelet
from device_plugin_process import A100, PluginProcess, a_node, needs_fake_driver

from hami_device_plugin.config.loader import load
from hami_device_plugin.config.named import LABEL, choose_name
from hami_device_plugin.config.settings import Config, parse_arguments
from hamicommon.config.device_config import ConfigError, Texts
from testbed import configmaps

BASE = (
    "nvidia: {resourceCountName: nvidia.com/gpu, deviceSplitCount: 10}\nflags: {gdsEnabled: true, mofedEnabled: true}\n"
)


def a_config(label: str | None, *arguments: str, overrides: str = "", **named: str) -> Config:
    """Return the settings of Node n1 with these named configs."""
    texts: Texts = {"/c": BASE, "/config/config.json": overrides, **{f"/named/{n}": text for n, text in named.items()}}
    given = parse_arguments(["--config-file=/c", "--config-file-srcdir=/named/", *arguments])
    return load(given, {"NODE_NAME": "n1"}, texts, label)


@pytest.mark.parametrize(
    ("label", "names", "default", "strategies", "expected"),
    [
        pytest.param("b", "ab", "a", [], "b", id="the label wins"),
        pytest.param("", "ab", "a", ["empty"], "a", id="then the default"),
        pytest.param("", ["x", "default"], "", ["named", "single"], "default", id="then the one called default"),
        pytest.param("", ["x"], "", ["named", "single"], "x", id="then the only one"),
        pytest.param("", "ab", "", ["named", "single", "empty"], "", id="then none"),
    ],
)
def test_label_wins_over_the_default_and_that_over_the_strategies(
    label: str, names: list[str], default: str, strategies: list[str], expected: str
) -> None:
    """The order of NVIDIA's config manager."""
    assert expected == choose_name(label, names, default, strategies)


@pytest.mark.parametrize(
    ("label", "default", "problem"),
    [
        pytest.param("c", "a", "config 'c' is not there; there are a, b", id="label"),
        pytest.param("", "c", "config 'c' is not there; there are a, b", id="default"),
        pytest.param("", "", "none of the strategies named, single finds one among a, b", id="strategies"),
    ],
)
def test_config_that_is_not_there_is_an_error(label: str, default: str, problem: str) -> None:
    """A Node must not run with other settings than it names."""
    with pytest.raises(ConfigError, match=problem):
        a_config(label, f"--default-config={default}", a="", b="")


def test_flag_wins_over_named_config_and_that_over_device_config() -> None:
    """Key by key."""
    named = "flags: {gdsEnabled: false, gdrcopyEnabled: true, plugin: {passDeviceSpecs: true}}"
    config = a_config("a", "--pass-device-specs=false", a=named)

    assert (False, True, True, False) == (
        config.gds,
        config.gdrcopy,
        config.mofed,
        config.is_passing_device_nodes,
    )
    assert "a" == config.named_config


def test_config_json_wins_over_named_config_and_that_over_device_config() -> None:
    """An entry that names the Node is more specific than a label that many Nodes have."""
    named = (
        "nvidia: {deviceSplitCount: 4, deviceMemoryScaling: 1.5, operatingmode: hami-core, filterdevices: {index: [1]}}"
    )
    entry = '{"nodeconfig": [{"name": "n1", "devicesplitcount": 2, "filterdevices": {"index": [3]}}]}'

    assert (10, 1.0) == (a_config("b", b="").sharing.split_count, a_config("b", b="").sharing.memory_scaling)
    assert (4, 1.5) == (a_config("a", a=named).sharing.split_count, a_config("a", a=named).sharing.memory_scaling)
    both = a_config("a", overrides=entry, a=named).sharing
    assert (2, 1.5, frozenset({1, 3})) == (both.split_count, both.memory_scaling, both.excluded_indices)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param(
            "nvidia: {deviceSplitCount: many}", r"/named/a: nvidia\.devicesplitcount: must be a number", id="value"
        ),
        pytest.param("nvidia: [4]", "/named/a: nvidia: must be a mapping", id="section"),
        pytest.param("- a", "/named/a: must be a mapping with the sections flags, imex and nvidia", id="list"),
        pytest.param("nvidia: {1: 2}", "/named/a: nvidia: has a key or a value that is none of JSON", id="key"),
        pytest.param("nvidia: {a: 99999999999999999999999}", "/named/a: nvidia: has a key or a value", id="number"),
        pytest.param("nvidia: &a {b: *a}", "/named/a: more than 100000 values", id="alias"),
        pytest.param("a: 2026-13-01", "/named/a: month must be in 1..12", id="date"),
        pytest.param("a: b: c", "/named/a: line 1: mapping values are not allowed in this context", id="no YAML"),
        pytest.param("flags: {gdsEnabled: perhaps}", "--gds-enabled: 'perhaps' is not true or false", id="flag"),
    ],
)
def test_errors_name_the_file(text: str, problem: str) -> None:
    """And the key in it."""
    with pytest.raises(ConfigError, match=problem):
        a_config("a", a=text)


def test_keys_without_effect_are_named() -> None:
    """NVIDIA's configs have sections that mean nothing here."""
    config = a_config(
        "a", a="version: v1\nsharing: {timeSlicing: {}}\nmore: 1\nflags: {migStrategie: none}\nnvidia: {x: 1}"
    )

    assert {
        "flags.migStrategie: unknown key, ignored",
        "more: unknown key, ignored",
        "nvidia.x: unknown key, ignored",
    } == set(config.warnings)


def labelled(config: str) -> dict[str, Any]:
    """Return the Node with a label that chooses *config*."""
    node = a_node()
    node["metadata"]["labels"] = {LABEL: config}
    return node


@needs_fake_driver
async def test_label_and_file_change_what_a_running_plugin_offers(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """In one session; a label without a config leaves everything as it is."""
    folder = host / "named"
    configmaps.mount(folder, {"few": "nvidia: {deviceSplitCount: 2}", "many": "nvidia: {deviceSplitCount: 5}"})
    api.put("nodes", labelled("few"))
    async with PluginProcess(host, api, kubelet, f"--config-file-srcdir={folder}") as plugin:
        await plugin.serving()
        assert 4 == len(kubelet.devices)
        api.put("nodes", labelled("many"))
        await plugin.until(lambda: len(kubelet.devices) == 10)

        api.put("nodes", labelled("none"))
        await plugin.until(lambda: "New device config not used, the old one stays" in plugin.events())
        configmaps.mount(folder, {"none": "nvidia: {deviceSplitCount: 1}"})
        await plugin.until(lambda: [f"{A100}-0"] == sorted(kubelet.devices)[:1] and len(kubelet.devices) == 2)

        assert 1 == len(kubelet.registrations)


@needs_fake_driver
async def test_plugin_whose_first_label_names_no_config_waits_for_one(
    host: Path, api: ApiServer, kubelet: Kubelet
) -> None:
    """It offers nothing under settings that are not this Node's."""
    folder = host / "named"
    configmaps.mount(folder, {"few": "nvidia: {deviceSplitCount: 2}"})
    api.put("nodes", labelled("fwe"))
    async with PluginProcess(host, api, kubelet, f"--config-file-srcdir={folder}") as plugin:
        await plugin.until(lambda: "Cannot serve devices" in plugin.events())
        [refusal] = [line["error"] for line in plugin.logs if line["event"] == "Cannot serve devices"][:1]
        await asyncio.sleep(0.5)
        assert [] == kubelet.registrations
        api.put("nodes", labelled("few"))
        await plugin.serving()
        assert 4 == len(kubelet.devices)

    assert (
        f"Node label {LABEL}='fwe', --config-file-srcdir {folder}: config 'fwe' is not there; there are few" in refusal
    )

"""
`config.json`: the settings of single Nodes.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hamicommon.config.device_config import ConfigError
from hamicommon.config.node_overrides import NodeConfig, load_node_overrides
from hamicommon.vendors.nvidia import NvidiaConfig

CHART_DEFAULT = """{"nodeconfig": [{"name": "your-node-name", "operatingmode": "hami-core", "devicememoryscaling": 1.8,
"devicesplitcount": 10, "migstrategy": "none", "filterdevices": {"uuid": ["GPU-a"], "index": [3]}}]}"""


def test_the_charts_example_holds_on_its_node_only() -> None:
    """Other Nodes keep the device config."""
    overrides = load_node_overrides(CHART_DEFAULT)
    config = NvidiaConfig(device_split_count=4)

    assert NodeConfig(config) == overrides.apply(config, "another")
    mine = overrides.apply(config, "your-node-name")
    assert (10, 1.8, 1.0) == (
        mine.nvidia.device_split_count,
        mine.nvidia.device_memory_scaling,
        mine.nvidia.device_core_scaling,
    )
    assert (frozenset({"GPU-a"}), frozenset({3})) == (mine.excluded_uuids, mine.excluded_indices)


def test_entries_of_one_name_apply_in_order() -> None:
    """The last entry with a value applies."""
    overrides = load_node_overrides(
        '{"nodeconfig": [{"name": "n", "devicesplitcount": 5, "operatingmode": "mig"},'
        ' {"NAME": "n", "DeviceSplitCount": 7}]}'
    )
    node = overrides.apply(NvidiaConfig(), "n")

    assert (7, "mig") == (node.nvidia.device_split_count, node.operating_mode)


def test_zero_leaves_a_number_and_false_switches_off() -> None:
    """HAMi's merge skips zeros; a switch must work in both directions."""
    overrides = load_node_overrides(
        '{"nodeconfig": [{"name": "n", "devicesplitcount": 0, "enablenumatopology": false}]}'
    )
    node = overrides.apply(NvidiaConfig(device_split_count=4, enable_numa_topology=True), "n")

    assert (4, False) == (node.nvidia.device_split_count, node.nvidia.enable_numa_topology)


@pytest.mark.parametrize("text", ["", "  \n", "{}", '{"nodeconfig": null}', '{"nodeconfig": []}'])
def test_a_file_that_says_nothing_changes_nothing(text: str) -> None:
    """The chart's ConfigMap may be empty."""
    assert NodeConfig(NvidiaConfig()) == load_node_overrides(text).apply(NvidiaConfig(), "n")


def test_every_problem_is_reported_at_once() -> None:
    """With its path and what would be right."""
    with pytest.raises(ConfigError) as raised:
        load_node_overrides(
            '{"nodeconfig": [{"name": 1, "operatingmode": "fast", "devicesplitcount": 1.5, "devicememoryscaling": "2",'
            ' "filterdevices": {"uuid": [1], "index": ["0", true]}}, 7]}'
        )

    assert {
        "nodeconfig[0].name: must be text, not '1'",
        "nodeconfig[0].operatingmode: 'fast' is none of hami-core, mig, mps",
        "nodeconfig[0].devicesplitcount: 1.5 is not a whole number",
        "nodeconfig[0].devicememoryscaling: must be a number, not '2'",
        "nodeconfig[0].filterdevices.uuid: must list text only, not '1'",
        "nodeconfig[0].filterdevices.index: must list a whole number only, not '0'",
        "nodeconfig[0].filterdevices.index: must list a whole number only, not 'True'",
        "nodeconfig[1]: must be an object",
    } == set(raised.value.problems)


def test_unknown_keys_are_warned_of() -> None:
    """A typing error is reported and does not stop a Node."""
    overrides = load_node_overrides('{"nodeconfig": [{"name": "n", "devicesplitcont": 5}]}')

    assert ("nodeconfig[0].devicesplitcont: unknown key, ignored",) == overrides.warnings


@pytest.mark.property
@given(st.one_of(st.text(), st.binary()))
def test_anything_is_overrides_or_a_config_error(text: str | bytes) -> None:
    """No file makes the reader fail in another way."""
    try:
        load_node_overrides(text)
    except ConfigError as error:
        assert error.problems  # noqa: PT017 - both outcomes are right


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[]", "(file): must be an object with a list under nodeconfig"),
        ('{"nodeconfig": {}}', "nodeconfig: must be a list"),
        ('{"nodeconfig": [7]}', "nodeconfig[0]: must be an object"),
        ('{"nodeconfig": [{"devicesplitcount": 1.5}]}', "nodeconfig[0].devicesplitcount: 1.5 is not a whole number"),
        (
            '{"nodeconfig": [{"devicesplitcount": true}]}',
            "nodeconfig[0].devicesplitcount: must be a number, not 'True'",
        ),
        (
            '{"nodeconfig": [{"devicecorescaling": -1}]}',
            "nodeconfig[0].devicecorescaling: -1 is not in 0 to 2147483647",
        ),
        (
            '{"nodeconfig": [{"filterdevices": {"index": ["x"]}}]}',
            "nodeconfig[0].filterdevices.index: must list a whole number only, not 'x'",
        ),
    ],
)
def test_wrong_shape_is_named_by_its_path(text: str, problem: str) -> None:
    """Where it is, and what would be right."""
    with pytest.raises(ConfigError) as raised:
        load_node_overrides(text)

    assert (problem,) == raised.value.problems


def test_mig_strategy_of_a_node_is_said_to_have_no_effect() -> None:
    """HAMi reads it and uses its flag. The example of HAMi's chart causes no warning."""
    entries = '{"nodeconfig": [{"name": "n1", "migstrategy": "none"}, {"name": "n2", "migstrategy": "mixed"}]}'

    [warning] = load_node_overrides(entries).warnings

    assert warning.startswith("nodeconfig[1].migstrategy: has no effect")

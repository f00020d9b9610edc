"""
The device config: files of HAMi's chart, mistakes of users, hostile files.
"""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hamicommon.config.device_config import ConfigError, DeviceConfig, load_device_config
from hamicommon.vendors import ascend, enflame, iluvatar, metax, nvidia
from hamicommon.vendors.nvidia import MigProfileRule
from hamicommon.wire.go.yaml_nodes import YamlError, plain

VECTORS = Path(__file__).parents[1] / "vectors" / "device-config"


def loaded(name: str) -> DeviceConfig:
    """Return one of the configs that HAMi's chart rendered."""
    return load_device_config((VECTORS / f"{name}.yaml").read_text())


def problems(text: str) -> tuple[str, ...]:
    """Return what is wrong with *text*."""
    with pytest.raises(ConfigError) as raised:
        load_device_config(text)
    return raised.value.problems


def test_the_charts_default_is_read_whole() -> None:
    """Every section has its names, nothing is unknown."""
    config = loaded("default")

    assert () == config.warnings
    assert "nvidia.com/gpumem-percentage" == config[nvidia.SECTION].resource_memory_percentage_name
    assert (1, 0, 0, 1, "default") == (
        config[nvidia.SECTION].default_device_count,
        config[nvidia.SECTION].default_memory_mib,
        config[nvidia.SECTION].default_core_percent,
        config[nvidia.SECTION].memory_factor,
        config[nvidia.SECTION].gpu_core_policy,
    )
    assert MigProfileRule(("A30",), ("1g.6gb", "2g.12gb", "4g.24gb")) == config[nvidia.SECTION].mig_profile_allowlist[0]
    assert 9 == len(config[nvidia.SECTION].mig_profile_allowlist)
    assert ["MR-V100", "MR-V50", "BI-V150", "BI-V100"] == [chip.common_word for chip in config[iluvatar.SECTION]]
    assert 7 == len(config[ascend.SECTION].chips)
    assert [2184, 4369, 8738, 17476] == [template.memory_mib for template in config[ascend.SECTION].chips[0].templates]
    assert "enflame.com/drs-gcu" == config[enflame.SECTION].resource_drs_name


def test_tuned_values_are_read() -> None:
    """Numbers and switches that differ from the defaults arrive."""
    config = loaded("tuned")

    assert (1024, 2048, 10, "force", True, "vendor-rt") == (
        config[nvidia.SECTION].memory_factor,
        config[nvidia.SECTION].default_memory_mib,
        config[nvidia.SECTION].default_core_percent,
        config[nvidia.SECTION].gpu_core_policy,
        config[nvidia.SECTION].overwrite_env,
        config[nvidia.SECTION].runtime_class_name,
    )
    assert (1024, 1) == (config[ascend.SECTION].chips[0].memory_factor, config[ascend.SECTION].chips[6].memory_factor)
    assert config[metax.SECTION].sgpu_topology_aware
    assert config[ascend.SECTION].hami_vnpu_core


def test_every_problem_is_reported_at_once_with_its_path_and_line() -> None:
    """All errors are reported at once."""
    text = """
nvidia:
  defaultMemory: "10"
  overwriteEnv: 1
  gpuCorePolicy: often
  deviceSplitCount: 0
  deviceMemoryScaling: .nan
  resourceCountName: [a]
  memoryFactor: 2147483648
  migProfileAllowlist: [{models: [A], profiles: [big]}]
hygon: [1]
"""
    assert problems(text) == (
        "nvidia.resourceCountName: line 8: must be text, not a list",
        "nvidia.overwriteEnv: line 4: must be true or false, not '1'",
        "nvidia.defaultMemory: line 3: must be a whole number, not the text '10' in quotes",
        "nvidia.memoryFactor: line 9: 2147483648 is not in 0 to 2147483647",
        "nvidia.gpuCorePolicy: line 5: 'often' is none of default, force, disable, empty",
        "nvidia.migProfileAllowlist[0].profiles[0]: line 10: 'big' is not a MIG profile such as 1g.10gb",
        "nvidia.deviceSplitCount: line 6: 0 is not in 1 to 2147483647",
        "nvidia.deviceMemoryScaling: line 7: must be a number, not '.nan'",
        "hygon: line 11: must be a mapping, not a list",
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nvidia: {a: 1}\nnvidia: {resourceCountName: x}", "nvidia: line 2: given twice; remove one"),
        ("", "(file): no vendor section; at least one, such as nvidia, must be there"),
        ("flags: {}\nversion: v1", "(file): no vendor section; at least one, such as nvidia, must be there"),
        ("[]", ": line 1: must be a mapping, not a list"),
        ("a: b: c", "(file): line 1: mapping values are not allowed in this context"),
        ("nvidia: {<<: {a: 1}}", "(file): line 1: merge keys (<<) are not supported; write the keys out"),
        ("nvidia: *x", "(file): line 1: alias *x has no anchor"),
        (
            "iluvatar: {resourceCountName: iluvatar.ai/vgpu}",
            "iluvatar: one object until v2.7.0; write a list under iluvatars, one entry a chip",
        ),
        (
            "iluvatars: [{commonWord: A}, {commonWord: A}, {}]",
            "iluvatars[1].commonWord: 'A' is already the word of another entry",
        ),
        (
            "nvidia: {resourceCountName: x, migProfileAllowlist: [{models: [], profiles: [1g.5gb]}]}",
            "nvidia.migProfileAllowlist[0].models: must name at least one",
        ),
        (
            "nvidia: {resourceCountName: 'a b'}",
            "nvidia.resourceCountName: line 1: 'a b' is not a resource name such as nvidia.com/gpu",
        ),
    ],
)  # fmt: skip
def test_a_problem_says_what_would_be_right(text: str, problem: str) -> None:
    """The message says what to write."""
    assert problem in problems(text)


def test_what_older_versions_wrote_is_read_or_warned_of() -> None:
    """An unambiguous old form needs no rewrite after an upgrade."""
    config = load_device_config(
        "vnpus: [{chipName: 910A, commonWord: Ascend910A, resourceName: huawei.com/Ascend910A}]\n"
        "nvidia: {resourceCountName: nvidia.com/gpu, knownMigGeometries: [], newerKey: 1, libCudaLogLevel: '3'}\n"
        "enflame: {resourceNameVGCU: enflame.com/vgcu}\n"
    )

    assert ["Ascend910A"] == [chip.common_word for chip in config[ascend.SECTION].chips]
    assert 3 == config[nvidia.SECTION].lib_cuda_log_level
    assert "enflame.com/vgcu" == config[enflame.SECTION].legacy_resource_vgcu_name
    assert ("vnpus: a list until v2.8; read as vnpus.configs",) == config.old_forms
    assert (
        "nvidia.knownMigGeometries: ignored since v2.10; write migProfileAllowlist",
        "nvidia.newerKey: line 2: unknown key, ignored",
    ) == config.warnings


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param(
            "nvidia: {resourceCountName: nvidia.com/gpu, resourceMemoryName: nvidia.com/gpu}",
            "nvidia.resourceMemoryName: 'nvidia.com/gpu' is already the name of nvidia.resourceCountName",
            id="in a section",
        ),
        pytest.param(
            "nvidia: {resourceCountName: a/gpu}\namd: {resourceCountName: a/gpu}",
            "amd.resourceCountName: 'a/gpu' is already the name of nvidia.resourceCountName",
            id="of two vendors",
        ),
        pytest.param(
            "iluvatars: [{commonWord: A, resourceMemoryName: a/mem}, {commonWord: B, resourceMemoryName: a/mem}]",
            "iluvatars[1].resourceMemoryName: 'a/mem' is already the name of iluvatars[0].resourceMemoryName",
            id="of two chips",
        ),
        pytest.param(
            "biren: {resourceCountName: a/x}\nvnpus: {configs: [{commonWord: A, resourceName: a/x}]}",
            "vnpus.configs[0].resourceName: 'a/x' is already the name of biren.resourceCountName",
            id="of a vendor and a chip",
        ),
        pytest.param(
            "enflame: {resourceNameGCU: a/gcu, resourceNameVGCU: a/gcu}",
            "enflame.resourceNameVGCU: 'a/gcu' is already the name of enflame.resourceNameGCU",
            id="old name in effect",
        ),
    ],
)
def test_resource_name_that_stands_twice_is_a_problem(text: str, problem: str) -> None:
    """Both places are named, also beside other errors."""
    assert f"{problem}; each resource needs its own name" in problems(text)
    assert {f"{problem}; each resource needs its own name"} < {*problems(f"{text}\nhygon: {{memoryFactor: -1}}")}


def test_resource_name_without_effect_stands_for_nothing() -> None:
    """An old key beside the new one may have the same value."""
    text = "enflame: {resourceNameDRSGCU: a/g, resourceNameVGCU: a/g, resourceNameVGCUPercentage: a/g}\n"

    assert "a/g" == load_device_config(text)[enflame.SECTION].resource_drs_name


def test_scalars_are_read_as_hamis_decoder_reads_them() -> None:
    """A number can be text, a null is an absent key, YAML 1.1 words are booleans."""
    config = load_device_config(
        "nvidia: {runtimeClassName: 0x10, defaultGPUNum: ~, overwriteEnv: yes, defaultMemory: 1e3,"
        " deviceMemoryScaling: 2}"
    )

    assert ("0x10", 1, True, 1000, 2.0) == (
        config[nvidia.SECTION].runtime_class_name,
        config[nvidia.SECTION].default_device_count,
        config[nvidia.SECTION].overwrite_env,
        config[nvidia.SECTION].default_memory_mib,
        config[nvidia.SECTION].device_memory_scaling,
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: " + "[" * 100 + "]" * 100, "nested deeper than 32 levels"),
        ("a: [" + "1," * 200_000 + "]", "more than 100000 values"),
        ("#" * (1024 * 1024 + 1), "are more than the 1048576 a configuration may have"),
        ("nvidia: \x00", "(file)"),
        ("nvidia: {a: \ud800}", "(file)"),
    ],
)  # fmt: skip
def test_hostile_text_is_refused_early(text: str, problem: str) -> None:
    """Depth, width and size are bounded before anything is built."""
    assert any(problem in each for each in problems(text))


def test_an_alias_bomb_costs_no_more_than_its_text() -> None:
    """A billion laughs are ten lines."""
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    config = load_device_config("\n".join([*lines, "nvidia: {resourceCountName: nvidia.com/gpu}"]))

    assert "nvidia.com/gpu" == config[nvidia.SECTION].resource_count_name


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 2026-13-01", "month must be in 1..12"),
        ("a: !!int x", "invalid literal"),
        ("a: 0x_", "invalid literal"),
        ("a: " + "9" * 5000, "4300 digits"),
        ("a: &a [*a]", "more than 100000 values, each alias written out"),
        ("a: &a [1, 1]\nb: &b [" + "*a, " * 500 + "]\nc: [" + "*b, " * 500 + "]", "more than 100000 values"),
        ("a: " + "[" * 100 + "]" * 100, "nested deeper than 32 levels"),
        ("a: b: c", "line 1: mapping values are not allowed"),
    ],
)  # fmt: skip
def test_plain_values_are_bounded_too(text: str, problem: str) -> None:
    """Whatever a value seems to be, there is one kind of error."""
    with pytest.raises(YamlError, match=problem):
        plain(text)


def test_a_node_that_contains_itself_is_read_once() -> None:
    """Recursion in the text causes none in the reader."""
    assert any("must be" in each for each in problems("nvidia: &a {migProfileAllowlist: [*a], overwriteEnv: *a}"))


@pytest.mark.property
@given(st.text(alphabet=st.sampled_from("nvidia:{}[]&*<!|>-'\"\n \t#,?ab01~"), max_size=200))
def test_any_text_is_a_config_or_a_config_error(text: str) -> None:
    """No text makes the reader fail in another way."""
    try:
        load_device_config(text)
    except ConfigError as error:
        assert error.problems  # noqa: PT017 - both outcomes are right


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("? [a]\n: 1\n", "(file): line 1: a key is a list or a mapping"),
        ("iluvatars: {a: 1}\n", "iluvatars: line 1: must be a list, not a mapping"),
        ("nvidia: [1]\n", "nvidia: line 1: must be a mapping, not a list"),
    ],
)
def test_wrong_shape_is_named_by_its_line(text: str, problem: str) -> None:
    """A list is no mapping, and a mapping no list."""
    assert problem in problems(text)


@pytest.mark.parametrize(
    ("name", "is_taken"),
    [
        ("nvidia.com/" + "g" * 63, True),
        ("nvidia.com/" + "g" * 64, False),
        ("a" * 240 + ".com/gpu", True),
        ("a" * 241 + ".com/gpu", False),
    ],
)
def test_a_resource_name_is_as_long_as_the_kubelet_takes(name: str, is_taken: bool) -> None:
    """It rejects the registration of a longer one, and nothing would be offered."""
    text = f"nvidia: {{resourceCountName: {name}}}"
    if is_taken:
        assert name == load_device_config(text)[nvidia.SECTION].resource_count_name
    else:
        with pytest.raises(ConfigError, match="Kubernetes takes 244 and 63"):
            load_device_config(text)

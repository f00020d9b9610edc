"""
Settings: their sources, precedence, and all errors at once.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import pytest

from hami_device_plugin.config.ignored import IGNORED_FLAGS, IgnoredFlag
from hami_device_plugin.config.loader import load
from hami_device_plugin.config.settings import Config, parse_arguments
from hamicommon.config.device_config import ConfigError, Texts, Unreadable
from hamicommon.runtime.program.settings import Setting, settings_of
from hamicommon.vendors.nvidia import MigProfileRule

DEVICE_CONFIG = "nvidia:\n  resourceCountName: nvidia.com/gpu\n"
NODE_CONFIG = "/config/config.json"
FLAGS = [flag for _, flag in settings_of(Config) if flag.is_late]
PROGRAM = Path(sys.executable).with_name("hami-device-plugin")


def a_config(
    *arguments: str,
    files: Texts | None = None,
    device_config: str = DEVICE_CONFIG,
    environ: Mapping[str, str] | None = None,
) -> Config:
    """Return the settings of a plugin on Node n1."""
    texts: Texts = {"/c": device_config, NODE_CONFIG: Unreadable("No such file or directory", is_missing=True)}
    given = parse_arguments(["--config-file=/c", *arguments])
    return load(given, {"NODE_NAME": "n1", **(environ or {})}, texts | (files or {}))


def problems(*arguments: str, **environ: str) -> str:
    """Return the problems of the settings, one a line."""
    with pytest.raises(ConfigError) as error:
        a_config(*arguments, environ=environ)
    return "\n".join(error.value.problems)


def test_defaults_are_hamis() -> None:
    """Paths, strategies and sharing as in the chart."""
    config = a_config()

    assert (
        "/var/lib/kubelet/device-plugins/kubelet.sock",
        "/usr/local",
        (),
        "nvidia.com/gpu",
        "nvidia-gpu.sock",
        10,
        "hami-core",
        "auto",
        True,
    ) == (
        config.kubelet_socket,
        config.hook_path,
        config.list_strategies,
        config.resource,
        config.socket(config.resource).name,
        config.sharing.split_count,
        config.sharing.mode,
        config.allocation,
        config.is_init_error_fatal,
    )


def test_flag_wins_over_environment_over_file_over_default() -> None:
    """Each source is read only if the one before has no value."""
    in_file = DEVICE_CONFIG + "flags:\n  gdsEnabled: true\n  plugin:\n    deviceListStrategy: [volume-mounts, envvar]\n"

    assert ("volume-mounts", "envvar") == a_config(device_config=in_file).list_strategies
    assert a_config(device_config=in_file).gds
    assert ("envvar",) == a_config(device_config=in_file, environ={"DEVICE_LIST_STRATEGY": "envvar"}).list_strategies
    assert ("volume-mounts",) == a_config(
        "--device-list-strategy=volume-mounts", device_config=in_file, environ={"DEVICE_LIST_STRATEGY": "envvar"}
    ).list_strategies


def test_boolean_flags_are_written_as_in_go() -> None:
    """`--x` means true, and never takes the next word."""
    assert a_config("--pass-device-specs").is_passing_device_nodes
    assert not a_config("--fail-on-init-error=F").is_init_error_fatal


@pytest.mark.parametrize("flag", IGNORED_FLAGS, ids=lambda flag: flag.name)
def test_flags_without_effect_are_accepted_with_a_sentence(flag: IgnoredFlag) -> None:
    """Old manifests and HAMi's chart pass them, as flags, variables or keys."""
    given = a_config(
        f"--{flag.name}=true",
        device_config=DEVICE_CONFIG + section(flag.key, "x"),
        environ=dict.fromkeys(flag.env, "true"),
    )

    names = (f"--{flag.name}", *flag.env)
    assert tuple(f"{name}: {flag.reason}" for name in names) == given.without_effect
    assert ((f"{'.'.join(flag.key)}: has no effect: {flag.reason}",) if flag.key else ()) == given.warnings
    assert a_config().sharing == given.sharing


@pytest.mark.parametrize(("value", "expected"), [("true", True), ("True", False), ("1", False), ("", False)])
def test_links_are_scored_only_if_hamis_variable_is_true(value: str, expected: bool) -> None:
    """HAMi reads no other spelling."""
    assert expected == a_config(environ={"ENABLE_TOPOLOGY_SCORE": value}).is_topology_scored


def test_links_are_also_read_for_alignment() -> None:
    """The preference needs them, the Node's annotation does not."""
    aligned = a_config("--shared-devices-allocation-policy=aligned")

    assert (True, False) == (aligned.rates_links, aligned.is_topology_scored)
    assert not a_config().rates_links


OTHER_VALUES = {
    "node-name": "n2",
    "allocation": "lock",
    "mig-strategy": "mixed",
    "fail-on-init-error": "false",
    "device-list-strategy": "volume-mounts",
    "device-id-strategy": "index",
    "device-discovery-strategy": "nvml",
    "imex-channel-ids": "0",
    "shared-devices-allocation-policy": "packed",
    "replica-ids": "nvidia",
    "node-label": "example.com/config",
    "fallback-strategies": "empty",
    "default-config": "two",
    "mock-devices": "/mock",
}
"""One that is not the default, or is refused, for each flag that neither `true` nor a path is for."""


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.names[0])
def test_every_flag_has_the_same_effect_from_each_of_its_sources(flag: Setting) -> None:
    """HAMi's variables and keys take effect."""
    value = OTHER_VALUES.get(flag.names[0].lstrip("-"), "true" if flag.is_bool else "/other")
    other = 'nvidia: {resourceCountName: x/gpu}\nnodeconfig: [{"name": "n1", "devicesplitcount": 4}]'
    needed = {"CONFIG_FILE": "/c", "NODE_NAME": "n1", "CONFIG_FILE_SRCDIR": "/named"}
    usual = {name: text for name, text in needed.items() if name not in flag.variables}

    def settings(*arguments: str, key: str = "", **environ: str) -> Config | tuple[str, ...]:
        named = {"/named/default": "", "/named/two": "", "/mock": "[{name: T4, memoryMib: 1}]"}
        texts: Texts = {"/c": DEVICE_CONFIG + key, NODE_CONFIG: "", "/other": other, **named}
        try:
            return load(parse_arguments(arguments), usual | environ, texts, label="")
        except ConfigError as error:
            return error.problems

    by_flag = settings(f"{flag.names[0]}={value}")
    assert settings(**needed) != by_flag
    for name in flag.variables:
        assert by_flag == settings(**{name: value})
    if flag.key:
        assert by_flag == settings(key=section(flag.key, value))


def section(key: tuple[str, ...], value: str) -> str:
    """Return the device config's section that gives *value* to the key at this path; empty without a path."""
    lines = (f"{'  ' * depth}{name}:" for depth, name in enumerate(key))
    return "\n".join(lines) + f" {value}\n" if key else ""


def test_aliases_of_hami_are_understood() -> None:
    """Old names of the same flags."""
    config = a_config("--nvidia-dev-root=/d", "--container-driver-root=/r")

    assert ("/d", "/r") == (config.dev_root, config.driver_root_here)


def test_node_overrides_win_over_the_device_config() -> None:
    """Only the entry of this Node counts."""
    entries = [
        {"name": "n2", "devicesplitcount": 99},
        {
            "name": "n1",
            "devicesplitcount": 4,
            "operatingmode": "mps",
            "enablegetpreferredallocation": True,
            "filterdevices": {"uuid": ["GPU-x"], "index": [3]},
        },
    ]
    config = a_config(files={NODE_CONFIG: json.dumps({"nodeconfig": entries})})

    assert (4, "mps", frozenset({"GPU-x"}), frozenset({3}), ("enablegetpreferredallocation",)) == (
        config.sharing.split_count,
        config.sharing.mode,
        config.sharing.excluded_uuids,
        config.sharing.excluded_indices,
        config.without_effect,
    )


def test_mode_mig_scales_nothing_and_sets_nothing_for_the_library() -> None:
    """The driver limits an instance. A change to or from the mode, or of the allowlist, needs a new session."""
    entries = json.dumps({"nodeconfig": [{"name": "n1", "operatingmode": "mig", "devicememoryscaling": 2}]})
    rules = "  migProfileAllowlist: [{models: [A100], profiles: [1g.5gb]}]\n  disableCoreLimit: true\n"
    shared = a_config(device_config=DEVICE_CONFIG + rules)

    config = a_config(files={NODE_CONFIG: entries}, device_config=DEVICE_CONFIG + rules)

    assert ("mig", 1.0, 1.0) == (config.sharing.mode, config.sharing.memory_scaling, config.sharing.core_scaling)
    assert ("", False) == (config.lib_cuda_log_level, config.is_core_limit_disabled)
    assert (MigProfileRule(("A100",), ("1g.5gb",)),) == config.mig_rules
    assert config.session_settings != shared.session_settings
    assert shared.session_settings != a_config().session_settings


def test_mode_mps_without_a_daemon_means_hami_core_and_says_so() -> None:
    """As in HAMi, whose MPS daemon is a stub: Pods may ask for the mode, and the library keeps the limits."""
    entries = json.dumps({"nodeconfig": [{"name": "n1", "operatingmode": "mps"}]})
    config = a_config(files={NODE_CONFIG: entries})

    assert "mps" == config.sharing.mode
    because = "--compute-enforcement is library, and --mps-root names no MPS daemon"
    assert (f"operatingmode of Node n1: mps means hami-core: {because}",) == config.warnings


def test_namespaces_of_mps_need_the_mode() -> None:
    """They replace an operator's daemon, and say so."""
    files: Texts = {NODE_CONFIG: json.dumps({"nodeconfig": [{"name": "n1", "operatingmode": "mps"}]})}

    assert () == a_config("--compute-enforcement=mps", files=files).warnings
    sentence = "--compute-enforcement: has no effect: operatingmode of Node n1 is not mps"
    assert (sentence,) == a_config("--compute-enforcement=mps-required").warnings
    both = a_config("--compute-enforcement=mps", "--mps-root=/run/nvidia/mps", files=files)
    assert (
        "--mps-root: has no effect: by --compute-enforcement the plugin keeps a daemon of its own",
    ) == both.warnings


def test_folder_of_an_mps_daemon_is_nvidias_setting_and_needs_the_mode() -> None:
    """A flag, a variable, or a key of the config that HAMi accepts."""
    entries = json.dumps({"nodeconfig": [{"name": "n1", "operatingmode": "mps"}]})
    files: Texts = {NODE_CONFIG: entries}
    named = DEVICE_CONFIG + "flags: {mpsRoot: /run/nvidia/mps/}\n"

    found = [a_config(device_config=named, files=files), a_config(files=files, environ={"MPS_ROOT": "/run/nvidia/mps"})]
    assert [("/run/nvidia/mps", ())] * 2 == [(config.mps_root, config.warnings) for config in found]
    sentence = "--mps-root: has no effect: operatingmode of Node n1 is not mps"
    assert (sentence,) == a_config(device_config=named).warnings
    assert "--mps-root: 'mps' is not an absolute path" in problems("--mps-root=mps")


def mps(replicas: int) -> str:
    """Return a device config that shares each device by MPS."""
    section = f"mps: {{resources: [{{name: nvidia.com/gpu, replicas: {replicas}}}]}}"
    return DEVICE_CONFIG + f"sharing: {{{section}}}\nflags: {{mpsRoot: /mps}}\n"


def test_sharing_by_mps_is_refused_because_it_would_not_hold() -> None:
    """A program that does not find the daemon's pipe runs without a limit."""
    with pytest.raises(ConfigError, match=r"sharing\.mps: would not hold: its equal parts are not what containers"):
        a_config(device_config=mps(4))


def test_sharing_by_mps_that_divides_nothing_is_accepted() -> None:
    """One replica is a whole device."""
    assert a_config(device_config=mps(1)).sharing == a_config().sharing


def test_all_errors_are_reported_at_once() -> None:
    """Each names the flag, the value and what would be right."""
    found = problems(
        "--mig-strategy=double",
        "--device-id-strategy=name",
        "--allocation=guess",
        "--device-list-strategy=cdi-cri,shouting",
        "--gds-enabled=perhaps",
        "--imex-channel-ids=7",
        NODE_NAME="",
        HAMI_WIRE_VERSION="3",
    )

    assert [
        "--node-name: is required; set the environment variable NODE_NAME to the Node's name",
        "--mig-strategy: 'double' is not one of none, single, mixed",
        "--allocation: 'guess' is not one of auto, identity, lock",
        "--device-list-strategy: 'shouting' is not one of envvar, volume-mounts, cdi-annotations, cdi-cri",
        "--device-id-strategy: 'name' is not one of uuid, index",
        "--gds-enabled: 'perhaps' is not true or false",
        "--imex-channel-ids: '7' is not empty or 0",
        "HAMI_WIRE_VERSION: wire version: '3' is not one of 2.4 to 2.10, such as 2.7",
    ] == found.splitlines()


def test_missing_device_config_is_an_error() -> None:
    """Without it there is no resource to register."""
    with pytest.raises(ConfigError, match="--config-file /nowhere: No such file; it must be a device config, YAML"):
        a_config("--config-file=/nowhere", files={"/nowhere": Unreadable("No such file", is_missing=True)})


def test_unreadable_overrides_are_an_error_and_missing_ones_are_none() -> None:
    """A Node must not silently run with the settings of all others."""
    with pytest.raises(ConfigError, match=f"--node-config-file {NODE_CONFIG}: Permission denied"):
        a_config(files={NODE_CONFIG: Unreadable("Permission denied")})


def test_keys_that_nobody_reads_are_told() -> None:
    """In the sections of NVIDIA's own plugin, so that a misspelt key is noticed."""
    config = a_config(
        device_config=DEVICE_CONFIG
        + "version: v1\nflags: {mpsRoot: /mps, plugin: {passDeviceSpec: true}}\nimex: {channelIDs: [0]}\n"
        + "sharing: {timeSlicin: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\nresources: {gpus: []}\n"
    )

    assert (
        "flags.plugin.passDeviceSpec: unknown key, ignored",
        "sharing.timeSlicin.resources: unknown key, ignored",
        "resources: has no effect: the section nvidia defines what is registered",
        "--mps-root: has no effect: operatingmode of Node n1 is not mps",
    ) == config.warnings


@pytest.mark.parametrize("arguments", [["--version"], ["version"]])
def test_version_is_printed(arguments: list[str]) -> None:
    """As a flag, and as HAMi's sub-command."""
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=True)

    assert f"hami-device-plugin {version('hami-device-plugin')}\n" == done.stdout


def test_wrong_settings_end_the_process_with_one_line() -> None:
    """No traceback, and exit code 1."""
    done = subprocess.run([PROGRAM, "--config-file=/nowhere"], capture_output=True, text=True, check=False, env={})

    assert (1, 1) == (done.returncode, len(done.stderr.splitlines()))
    assert "--config-file /nowhere: No such file or directory" in done.stderr


@pytest.mark.parametrize(
    ("name", "is_bool"),
    [(name.lstrip("-"), flag.is_bool) for flag in FLAGS for name in flag.names]
    + [(ignored.name, ignored.is_bool) for ignored in IGNORED_FLAGS],
)
def test_every_flag_is_taken_in_each_of_its_forms(name: str, is_bool: bool) -> None:
    """`--x=v` and `--x v`; a boolean alone too."""
    forms = [[f"--{name}"], [f"--{name}=true"]] if is_bool else [[f"--{name}=true"], [f"--{name}", "true"]]

    for form in forms:
        assert "true" in vars(parse_arguments(form)).values()


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--mig-strategy=single", "--mig-strategy: must be none with --node-kind=dra"),
        ("--compute-enforcement=mps", "--compute-enforcement: must be library with --node-kind=dra"),
    ],
    ids=["mig", "mps"],
)
def test_node_of_kind_dra_refuses_what_it_cannot_offer(flag: str, message: str) -> None:
    """Nothing is left out without a word."""
    assert message in problems("--node-kind=dra", flag)


def test_node_is_of_kind_plugin_unless_a_setting_says_otherwise() -> None:
    """An update changes no Node's kind."""
    assert "plugin" == a_config().node_kind
    assert "dra" == a_config(environ={"HAMI_NODE_KIND": "dra"}).node_kind

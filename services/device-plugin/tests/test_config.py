"""
Settings: where they come from, which one wins, and every error at once.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from hami_device_plugin.arguments import FLAGS, IGNORED_BOOL_FLAGS, IGNORED_FLAGS, parse_arguments
from hami_device_plugin.config import Config, load
from hamicommon.config import ConfigError

DEVICE_CONFIG = "nvidia:\n  resourceCountName: nvidia.com/gpu\n"
PROGRAM = Path(sys.executable).with_name("hami-device-plugin")


def a_config(
    *arguments: str, files: Mapping[str, str] | None = None, device_config: str = DEVICE_CONFIG, **environ: str
) -> Config:
    """Return the settings a plugin on node n1 has."""
    found = {"/c": device_config} | dict(files or {})
    return load(parse_arguments(["--config-file=/c", *arguments]), {"NODE_NAME": "n1"} | environ, found.get)


def problems(*arguments: str, **settings: str) -> str:
    """Return what is wrong with the settings, one a line."""
    with pytest.raises(ConfigError) as error:
        a_config(*arguments, **settings)
    return "\n".join(error.value.problems)


def test_defaults_are_hamis():
    """Paths, strategies and sharing as the chart leaves them."""
    config = a_config()

    assert (
        "/var/lib/kubelet/device-plugins/kubelet.sock",
        "/usr/local",
        ("envvar",),
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
        config.endpoint,
        config.sharing.split_count,
        config.sharing.mode,
        config.allocation,
        config.is_init_error_fatal,
    )


def test_flag_wins_over_environment_over_file_over_default():
    """Each source is asked only where the one before is silent."""
    in_file = DEVICE_CONFIG + "flags:\n  gdsEnabled: true\n  plugin:\n    deviceListStrategy: [volume-mounts, envvar]\n"

    assert ("volume-mounts", "envvar") == a_config(device_config=in_file).list_strategies
    assert a_config(device_config=in_file).gds
    assert ("envvar",) == a_config(device_config=in_file, DEVICE_LIST_STRATEGY="envvar").list_strategies
    assert ("volume-mounts",) == a_config(
        "--device-list-strategy=volume-mounts", device_config=in_file, DEVICE_LIST_STRATEGY="envvar"
    ).list_strategies


def test_boolean_flags_are_written_as_in_go():
    """`--x` is true and never takes the next word."""
    assert a_config("--pass-device-specs").is_passing_device_nodes
    assert not a_config("--fail-on-init-error=F").is_init_error_fatal


@pytest.mark.parametrize(
    "flag",
    [
        "--device-split-count=5",
        "--device-memory-scaling=2",
        "--device-cores-scaling=2",
        "--disable-core-limit",
        "--disable-core-limit=false",
        "--resource-name=nvidia.com/vgpu",
        "--cdi-annotation-prefix=x/",
        "--nvidia-ctk-path=/x",
        "--nvidia-cdi-hook-path=/x",
    ],
)
def test_flags_without_effect_are_accepted_with_a_sentence(flag: str):
    """Old manifests pass them, and the chart still passes some."""
    config = a_config(flag)

    assert [True] == [warning.startswith(flag.partition("=")[0] + " has no effect: ") for warning in config.warnings]
    assert 10 == config.sharing.split_count


def test_aliases_of_hami_are_understood():
    """Old names of the same flags."""
    config = a_config("--nvidia-dev-root=/d", "--container-driver-root=/r")

    assert ("/d", "/r") == (config.dev_root, config.driver_root_here)


def test_node_overrides_win_over_the_device_config():
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
    config = a_config(files={"/config/config.json": json.dumps({"nodeconfig": entries})})

    assert (4, "mps", {"GPU-x"}, {3}, True) == (
        config.sharing.split_count,
        config.sharing.mode,
        config.sharing.excluded_uuids,
        config.sharing.excluded_indices,
        config.follows_kubelet,
    )


def test_mode_mig_is_refused():
    """Devices registered for it without profiles could never be used."""
    entries = json.dumps({"nodeconfig": [{"name": "n1", "operatingmode": "mig"}]})
    with pytest.raises(ConfigError, match="mig is not supported yet"):
        a_config(files={"/config/config.json": entries})


def test_all_errors_are_reported_at_once():
    """Each names the flag, the value and what would be right."""
    found = problems(
        "--mig-strategy=mixed",
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
        "--allocation: 'guess' is not one of auto, identity, lock",
        "--device-list-strategy: cdi-cri needs CDI specs of whole devices, which are not written here; "
        "use envvar or volume-mounts, whose result travels by CDI where the runtime has it",
        "--device-list-strategy: 'shouting' is not envvar or volume-mounts",
        "--device-id-strategy: 'name' is not one of uuid, index",
        "--gds-enabled: 'perhaps' is not true or false",
        "--imex-channel-ids: '7' is not empty or 0",
        "HAMI_WIRE_VERSION: wire version: '3' is not one of 2.4 to 2.10, such as 2.7",
        "--mig-strategy: 'mixed' is not one of none",
    ] == found.splitlines()


def test_missing_device_config_is_an_error():
    """Without it there is no resource to register."""
    with pytest.raises(ConfigError, match="--config-file /nowhere: cannot be read"):
        load(parse_arguments(["--config-file=/nowhere"]), {"NODE_NAME": "n1"}, lambda _path: None)


@pytest.mark.parametrize("arguments", [["--version"], ["version"]])
def test_version_is_printed(arguments: list[str]):
    """As a flag and as HAMi's sub-command."""
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=True)

    assert "hami-device-plugin 0.1.0\n" == done.stdout


def test_wrong_settings_end_the_process_with_one_line():
    """No traceback, and exit code 1."""
    done = subprocess.run([PROGRAM, "--config-file=/nowhere"], capture_output=True, text=True, check=False, env={})

    assert (1, 1) == (done.returncode, len(done.stderr.splitlines()))
    assert "--config-file /nowhere: cannot be read" in done.stderr


@pytest.mark.parametrize("name", [name for flag in FLAGS for name in (flag.name, *flag.aliases)] + [*IGNORED_FLAGS])
def test_every_flag_is_taken_in_each_of_its_forms(name: str):
    """`--x=v` and `--x v`; a boolean also alone."""
    is_bool = name in IGNORED_BOOL_FLAGS or any(flag.is_bool and flag.name == name for flag in FLAGS)
    forms = [[f"--{name}"], [f"--{name}=true"]] if is_bool else [[f"--{name}=true"], [f"--{name}", "true"]]

    for form in forms:
        assert "true" in vars(parse_arguments(form)).values()

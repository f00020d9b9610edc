"""
Which device files `--pass-device-specs` gives a container.
"""

from pathlib import Path
from typing import Any

import pytest

from hami_device_plugin.config.loader import load
from hami_device_plugin.config.settings import Config, parse_arguments
from hami_device_plugin.decide.probe.strategy import Strategy
from hami_device_plugin.serve.allocate.calls import ImexError, grant_policy
from hamicommon.config.device_config import Unreadable

ENVVAR, NATIVE = Strategy(("envvar",), "configured"), Strategy(("cdi-cri",), "configured")


def a_config(root: Path, *flags: str) -> Config:
    """Return the settings of a plugin that has the host's /run/nvidia/driver at *root*."""
    arguments = parse_arguments(
        [
            *("--config-file=/c", "--nvidia-driver-root=/run/nvidia/driver", f"--driver-root-ctr-path={root}"),
            *flags,
        ]
    )
    texts: Any = {"/c": "nvidia:\n  resourceCountName: r/gpu\n", "/config/config.json": Unreadable("", is_missing=True)}
    return load(arguments, {"NODE_NAME": "n1"}, texts)


def make_nodes(root: Path, *paths: str) -> None:
    """Make device files below the driver's *root*."""
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()


def test_uvm_is_passed_where_the_plugins_own_container_has_none(tmp_path: Path) -> None:
    """The plugin asks NVIDIA's runtime for less than its containers need. CUDA needs nvidia-uvm."""
    make_nodes(tmp_path, "dev/nvidiactl", "dev/nvidia-uvm")
    policy = grant_policy(a_config(tmp_path, "--pass-device-specs"), (), ENVVAR)

    assert (("/dev/nvidiactl", "/dev/nvidia-uvm"), "/run/nvidia/driver") == (policy.control_nodes, policy.dev_root)


def test_native_cdi_passes_the_drivers_own_list(tmp_path: Path) -> None:
    """The generator knows more device files than this list, and their numbers."""
    make_nodes(tmp_path, "dev/nvidiactl", "dev/nvidia-uvm")
    policy = grant_policy(a_config(tmp_path, "--pass-device-specs"), (), NATIVE)

    assert ((), None) == (policy.control_nodes, policy.minors)


def test_imex_channel_is_looked_for_below_the_driver_root(tmp_path: Path) -> None:
    """A required channel that is missing there stops the plugin."""
    config = a_config(tmp_path, "--imex-channel-ids=0", "--imex-required")
    (tmp_path / "dev").mkdir()
    with pytest.raises(ImexError, match="channel0 does not exist"):
        grant_policy(config, (), ENVVAR)
    make_nodes(tmp_path, "dev/nvidia-caps-imex-channels/channel0")

    assert (0,) == grant_policy(config, (), ENVVAR).imex_channels

"""
Flags and environment as HAMi's chart sets them.
"""

from dataclasses import replace
from importlib.metadata import version

import pytest

from hami_monitor.config import Config, read_config
from hamicommon.config.device_config import ConfigError
from hamicommon.runtime.program.hami_flags import KLOG_FLAGS

ENVIRONMENT = {"NODE_NAME": "n1", "HOOK_PATH": "/usr/local/vgpu"}


def test_defaults_are_hamis() -> None:
    """Port 9394, five minutes, five seconds, no legacy names."""
    expected = Config("n1", "/usr/local/vgpu", 300.0, ":9394", False, round_seconds=5.0, kubeconfig="", verbosity=0)

    assert expected == read_config([], ENVIRONMENT)


def test_flags_of_hamis_chart_are_understood() -> None:
    """The chart's flags in Go's spelling, klog's included."""
    arguments = ["--metrics-bind-address=:9999", "--legacy-metrics", "-v=4", "--logtostderr=true", "--kubeconfig", "/k"]

    settings = read_config(arguments, ENVIRONMENT | {"HAMI_RESYNC_INTERVAL": "2m"})

    told = ("--logtostderr: logs go to stderr, one JSON object a line",)
    expected = Config("n1", "/usr/local/vgpu", 120.0, ":9999", True, kubeconfig="/k", verbosity=4, without_effect=told)
    assert expected == settings


@pytest.mark.parametrize("text", ["soon", "5", "-1m", "0s"])
def test_bad_resync_interval_falls_back_with_a_warning(text: str) -> None:
    """As in HAMi; the warning has the invalid value and the default."""
    settings = read_config([], ENVIRONMENT | {"HAMI_RESYNC_INTERVAL": text})

    assert 300.0 == settings.resync_seconds
    assert ["HAMI_RESYNC_INTERVAL" in warning and repr(text) in warning for warning in settings.warnings] == [True]


def test_everything_missing_is_named_at_once() -> None:
    """Two sentences, each with its variable."""
    with pytest.raises(ConfigError) as caught:
        read_config([], {})

    assert ["NODE_NAME", "HOOK_PATH"] == [problem.split()[2] for problem in caught.value.problems]


def test_hook_path_may_be_empty() -> None:
    """HAMi requires the variable, not a value."""
    assert "" == read_config([], {"NODE_NAME": "n1", "HOOK_PATH": ""}).hook_path


@pytest.mark.parametrize("arguments", [["--version"], ["version"]])
def test_version_is_printed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Both as a flag and, as in HAMi, as a word."""
    with pytest.raises(SystemExit) as left:
        read_config(arguments, {})

    assert (0, f"hami-monitor {version('hami-monitor')}\n") == (left.value.code, capsys.readouterr().out)


@pytest.mark.parametrize("text", ["5", "0s", "-1s"])
def test_interval_that_is_no_time_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The message names the flag."""
    with pytest.raises(SystemExit):
        read_config([f"--feedback-interval={text}"], ENVIRONMENT)

    assert "--feedback-interval" in capsys.readouterr().err


@pytest.mark.parametrize("name", KLOG_FLAGS)
def test_every_flag_of_klog_is_taken_in_each_of_its_forms(name: str) -> None:
    """`--x=v` and `--x v`; a boolean alone too."""
    for form in [[name], [f"{name}=false"]] if KLOG_FLAGS[name] else [[f"{name}=1"], [name, "1"]]:
        [told] = (settings := read_config(form, ENVIRONMENT)).without_effect
        assert (Config("n1", "/usr/local/vgpu"), name) == (replace(settings, without_effect=()), told.partition(":")[0])

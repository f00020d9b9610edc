"""The command line."""

import pytest

from hami_scheduler.config import Config, read_config
from hamicommon.config.device_config import ConfigError, load_device_config
from hamicommon.runtime.program.hami_flags import KLOG_FLAGS, SCHEDULER_FLAGS, VENDOR_FLAGS
from hamicommon.vendors import ascend, iluvatar, nvidia
from hamicommon.wire.version import WireVersion

from .support.builders import VECTORS

FILE = "--device-config-file=/etc/hami/device-config.yaml"
LEASE = ("--leader-elect-resource-name=hami", "--leader-elect-resource-namespace=kube-system")


def config(*arguments: str, **environment: str) -> Config:
    """Return what a command line means."""
    return read_config([FILE, *arguments], environment, "host-1")


def test_defaults_are_hamis() -> None:
    """A deployment that sets nothing behaves as before."""
    found = config()

    assert ("127.0.0.1:8080", ":9395") == (found.http_bind, found.metrics_bind_address)
    assert ("binpack", "spread") == (found.policies.node, found.policies.device)
    assert (300.0, 28.0) == (found.node_lock_timeout_seconds, found.lock_wait_seconds)
    assert (False, False) == (found.must_lead, found.has_legacy_metrics)
    assert (WireVersion(2, 10), "host-1", 0) == (found.wire_version, found.hostname, found.verbosity)


def test_arguments_of_hamis_chart_are_accepted() -> None:
    """Every flag of HAMi 2.10 is known; those without effect change nothing."""
    found = config(
        "--http_bind=0.0.0.0:443",
        "--cert_file=/tls/tls.crt",
        "--key_file=/tls/tls.key",
        "--scheduler-name=hami-scheduler",
        "--metrics-bind-address=:9395",
        "--node-scheduler-policy=spread",
        "--gpu-scheduler-policy=binpack",
        "--force-overwrite-default-scheduler=true",
        "--enable-iluvatar=false",
        "--enable-ascend",
        "--kube-qps=20",
        "--kube-burst",
        "30",
        "--kube-timeout=30",
        "--profiling",
        "--sgpu-topology-aware=false",
        "--cambricon-mlu-name=x",
        "--node-label-selector=gpu=on",
        "--node-lock-timeout=1m",
        "--node-lock-retry-timeout=0",
        "--leader-elect=true",
        "--leader-elect-resource-name=hami",
        "--leader-elect-resource-namespace=kube-system",
        "--legacy-metrics",
        "--debug",
        "-v=1",
    )

    assert ("0.0.0.0:443", "/tls/tls.crt", "gpu=on") == (found.http_bind, found.cert_file, found.node_label_selector)
    assert ("spread", "binpack") == (found.policies.node, found.policies.device)
    assert (60.0, 0.0, True, True, 4) == (
        found.node_lock_timeout_seconds,
        found.lock_wait_seconds,
        found.must_lead,
        found.has_legacy_metrics,
        found.log_verbosity,
    )


def test_every_problem_is_reported_at_once() -> None:
    """Nobody starts the process four times to learn four things."""
    with pytest.raises(ConfigError) as caught:
        read_config(
            ["--cert_file=x", "--leader-elect"], {"HAMI_WIRE_VERSION": "1.0", "HAMI_NODELOCK_EXPIRE": "soon"}, "h"
        )

    for part in (
        "--device-config-file",
        "--key_file",
        "--leader-elect-resource-name",
        "WIRE_VERSION",
        "NODELOCK_EXPIRE",
    ):
        assert part in str(caught.value)


def test_environment_sets_what_hamis_chart_sets_there() -> None:
    """The lock's expiry counts unless the flag is given; HAMi's own scheduler ignores it."""
    assert 120.0 == config(HAMI_NODELOCK_EXPIRE="2m").node_lock_timeout_seconds
    assert 60.0 == config("--node-lock-timeout=1m", HAMI_NODELOCK_EXPIRE="2m").node_lock_timeout_seconds
    assert WireVersion(2, 7) == config(HAMI_WIRE_VERSION="2.7").wire_version


@pytest.mark.parametrize("name", [*SCHEDULER_FLAGS, *VENDOR_FLAGS, *KLOG_FLAGS])
def test_every_flag_of_hamis_scheduler_is_taken_in_each_of_its_forms(name: str) -> None:
    """`--x=v` and `--x v`; a boolean also alone, and never with a word of its own."""
    is_bool = {**SCHEDULER_FLAGS, **VENDOR_FLAGS, **KLOG_FLAGS}[name]
    value = "binpack" if name.endswith("-policy") else "1m"
    forms = [[name], [f"{name}=false"], [f"{name}=T"]] if is_bool else [[f"{name}={value}"], [name, value]]
    needed = ["--cert_file=/c", "--key_file=/k", *LEASE]

    for form in forms:
        assert "/c" == config(*form, *needed).cert_file


@pytest.mark.parametrize(
    "text", ["binpack", "spread", "topology-aware", "mutex", "numa", "mutex, numa", "numa,spread,"]
)
def test_every_device_policy_of_hamis_is_taken(text: str) -> None:
    """Alone, and in a list, with the blanks that HAMi allows."""
    assert text == config(f"--gpu-scheduler-policy={text}").policies.device


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("--node-scheduler-policy=bin-pack", "'bin-pack' is no Node policy; write binpack or spread"),
        ("--node-scheduler-policy=Spread", "'Spread' is no Node policy"),
        ("--gpu-scheduler-policy=foo", "'foo' is no device policy; write binpack, spread, topology-aware, mutex, numa"),
        ("--gpu-scheduler-policy=binpack,nmua", "'nmua' is no device policy"),
        ("--gpu-scheduler-policy= binpack", "' binpack' is no device policy"),
        ("--node-label-selector=gpu=on,zone=a=b", "'zone=a=b' is not a requirement on labels; write key=value"),
        ("--node-label-selector=gpu=on,", "'' is not a requirement on labels"),
    ],
)
def test_misspelt_value_is_refused_with_what_would_be_right(argument: str, text: str) -> None:
    """HAMi takes such a policy for the opposite, and such a selector ends in an error of the API server."""
    with pytest.raises(ConfigError) as caught:
        config(argument)

    assert f"{argument.partition('=')[0]}: {text}" in str(caught.value)


def test_empty_policy_is_the_default() -> None:
    """As a chart with an empty value writes it."""
    found = config("--node-scheduler-policy=", "--gpu-scheduler-policy=").policies

    assert ("binpack", "spread") == (found.node, found.device)


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("--node-lock-timeout=-1m", "--node-lock-timeout: '-1m' is not longer than 0"),
        ("--node-lock-timeout=0", "--node-lock-timeout: '0' is not longer than 0"),
        ("--node-lock-retry-timeout=-1s", "--node-lock-retry-timeout: '-1s' is negative; write 0 or more"),
        ("--default-mem=5000", "unknown flag: --default-mem; removed in HAMi 2.10; write nvidia.defaultMemory in"),
        ("--default-cores=5", "write nvidia.defaultCores in the device config"),
        ("--default-gpu=1", "write nvidia.defaultGPUNum in the device config"),
        ("--iluvatar-name=x", "write the names under iluvatars in the device config"),
    ],
)
def test_flag_that_cannot_be_meant_is_refused(argument: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With its name; and one that HAMi has no more, with where its value goes now."""
    with pytest.raises(SystemExit) as left:
        config(argument)

    assert 2 == left.value.code
    assert text in capsys.readouterr().err


def test_expiry_in_the_environment_is_held_to_the_same() -> None:
    """A lock that expires at once does not lock."""
    with pytest.raises(ConfigError, match="HAMI_NODELOCK_EXPIRE: '0s' is not longer than 0"):
        config(HAMI_NODELOCK_EXPIRE="0s")


def test_people_are_answered_on_this_host_only() -> None:
    """What is told there is about every namespace."""
    assert "127.0.0.1:9396" == config().explain_bind_address
    assert "[::1]:1" == config("--explain-bind-address=[::1]:1").explain_bind_address
    assert "localhost:1" == config("--explain-bind-address=localhost:1").explain_bind_address
    assert "" == config("--explain-bind-address=").explain_bind_address
    for address in (":9396", "0.0.0.0:9396", "10.0.0.1:9396", "scheduler:9396"):
        with pytest.raises(ConfigError, match="must be a loopback address"):
            config(f"--explain-bind-address={address}")


def test_flags_without_effect_are_told_where_they_are_given() -> None:
    """One line each, with the reason; those with an effect are not among them."""
    given = config("--kube-qps=20", "--enable-ascend", "--dcu-name=x").without_effect

    assert ["--kube-qps", "--dcu-name"] == [line.partition(":")[0] for line in given]
    assert () == config("--enable-iluvatar=false").without_effect


def test_vendors_are_placed_only_where_their_flag_says_so() -> None:
    """As in HAMi: Ascend and Iluvatar exist when they are enabled."""
    devices = load_device_config((VECTORS / "device-config-default.yaml").read_text())

    for has_ascend, has_iluvatar in ((True, False), (False, True)):
        found = devices.enabled(has_ascend=has_ascend, has_iluvatar=has_iluvatar)
        assert (has_ascend, has_iluvatar) == (bool(found[ascend.SECTION].chips), bool(found[iluvatar.SECTION]))
        assert devices[nvidia.SECTION] == found[nvidia.SECTION]
    assert (True, False) == (config("--enable-ascend").has_ascend, config("--enable-ascend").has_iluvatar)

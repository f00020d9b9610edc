"""
The webhook's flags: the command line of HAMi's scheduler starts it.
"""

from dataclasses import replace

import pytest

from hami_webhook.config import Config, read_config
from hamicommon.config.device_config import ConfigError
from hamicommon.runtime.program.hami_flags import KLOG_FLAGS, SCHEDULER_FLAGS, VENDOR_FLAGS


def test_the_charts_scheduler_arguments_are_taken() -> None:
    """The arguments of HAMi's chart are accepted, and the relevant ones take effect."""
    config = read_config(
        [
            *("--http_bind=0.0.0.0:443", "--cert_file=/tls/tls.crt", "--key_file=/tls/tls.key"),
            *("--scheduler-name=hami-scheduler", "--metrics-bind-address=:9395", "--node-scheduler-policy=binpack"),
            *("--gpu-scheduler-policy=spread", "--force-overwrite-default-scheduler=true"),
            *("--device-config-file=/device-config.yaml", "--enable-ascend=true", "--enable-iluvatar=true"),
            *("--leader-elect=true", "--leader-elect-resource-name=hami", "--leader-elect-resource-namespace=kube"),
            *(
                "--node-label-selector=gpu=on",
                "--node-lock-timeout=5m",
                "--kube-qps=5",
                "--profiling",
                "--debug",
                "-v=4",
            ),
        ]
    )

    assert Config(
        http_bind="0.0.0.0:443",
        metrics_bind_address=":9395",
        cert_file="/tls/tls.crt",
        key_file="/tls/tls.key",
        scheduler_name="hami-scheduler",
        overwrite_default_scheduler=True,
        device_config_file="/device-config.yaml",
        has_ascend=True,
        has_iluvatar=True,
        verbosity=4,
        is_debugged=True,
    ) == replace(config, without_effect=())
    told = [line.partition(":")[0] for line in config.without_effect]
    assert {"--node-scheduler-policy", "--leader-elect", "--kube-qps", "--profiling"} <= set(told)
    assert {"--enable-ascend", "--scheduler-name"}.isdisjoint(told)


def test_defaults_are_hamis() -> None:
    """A missing flag has HAMi's default."""
    assert Config(device_config_file="/d") == read_config(["--device-config-file=/d"])


def test_every_contradiction_is_reported_at_once() -> None:
    """One start reports all problems."""
    with pytest.raises(ConfigError) as raised:
        read_config(["--cert_file=/tls.crt"])

    assert (
        "--device-config-file: is required; it names the resources to manage",
        "--cert_file and --key_file: give both for TLS, or neither for plain HTTP",
    ) == raised.value.problems


OWN = ("--tls-secret=hami/tls", "--tls-names=hami-webhook.hami.svc,10.0.0.1,,::1", "--webhook-configuration=hami")


def test_a_certificate_of_its_own_needs_three_flags() -> None:
    """Its Secret, its names, and the configuration to publish it in."""
    config = read_config(["--device-config-file=/d", *OWN])

    assert ("hami/tls", ("hami-webhook.hami.svc", "10.0.0.1", "::1"), "hami") == (
        config.tls_secret,
        config.tls_names,
        config.webhook_configuration,
    )


@pytest.mark.parametrize("certificate", [(), ("--cert_file=/c", "--key_file=/k")])
def test_its_registration_may_be_named_with_any_certificate(certificate: tuple[str, ...]) -> None:
    """The check of the registration does not depend on the certificate."""
    config = read_config(["--device-config-file=/d", OWN[2], *certificate])

    assert "hami" == config.webhook_configuration


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (OWN[:1], "--tls-secret and --tls-names: give both, and --webhook-configuration, or neither"),
        (OWN[:2], "--tls-secret and --tls-names: give both, and --webhook-configuration, or neither"),
        (OWN[1:], "--tls-secret and --tls-names: give both, and --webhook-configuration, or neither"),
        (
            (*OWN, "--cert_file=/c", "--key_file=/k"),
            "--tls-secret: is for a certificate that the webhook makes; give it, or --cert_file and --key_file",
        ),
        (("--tls-secret=tls", *OWN[1:]), "--tls-secret: must be NAMESPACE/NAME, not 'tls'"),
        (("--tls-secret=a/b/c", *OWN[1:]), "--tls-secret: must be NAMESPACE/NAME, not 'a/b/c'"),
        (
            (OWN[0], "--tls-names=a_b", OWN[2]),
            "--tls-names: must be DNS names or IP addresses, comma-separated, not 'a_b'",
        ),
    ],
)
def test_a_contradiction_about_the_certificate_names_its_flags(flags: tuple[str, ...], problem: str) -> None:
    """The message says what would be right."""
    with pytest.raises(ConfigError) as raised:
        read_config(["--device-config-file=/d", *flags])

    assert (problem,) == raised.value.problems


EFFECTIVE = {
    *("--http_bind", "--cert_file", "--key_file", "--scheduler-name", "--metrics-bind-address", "--device-config-file"),
    *("--force-overwrite-default-scheduler", "--debug", "--enable-ascend", "--enable-iluvatar"),
}


@pytest.mark.parametrize("name", [*SCHEDULER_FLAGS, *VENDOR_FLAGS, *KLOG_FLAGS])
def test_every_flag_of_hamis_scheduler_is_taken_in_each_of_its_forms(name: str) -> None:
    """`--x=v` and `--x v`; a boolean alone too, but never with a separate word."""
    is_bool = {**SCHEDULER_FLAGS, **VENDOR_FLAGS, **KLOG_FLAGS}[name]
    forms = [[name], [f"{name}=false"], [f"{name}=T"]] if is_bool else [[f"{name}=1m"], [name, "1m"]]
    needed = ["--device-config-file=/d", "--cert_file=/c", "--key_file=/k"]

    for form in forms:
        config = read_config([*form, *needed])
        assert "/c" == config.cert_file
        assert [name] == [line.partition(":")[0] for line in config.without_effect] or name in EFFECTIVE

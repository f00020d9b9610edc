"""
The webhook's settings: the flags of HAMi's scheduler that concern admission.

HAMi's scheduler contains its webhook, and its chart passes one list of flags. So the scheduler's other flags are
accepted here, without effect. All problems are reported at once.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/cmd/scheduler/main.go
"""

import ipaddress
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hami_webhook import __version__
from hamicommon.config import ConfigError
from hamicommon.runtime.program.flags import FlagParser, bool_flag, parser
from hamicommon.runtime.program.hami_flags import SCHEDULER_FLAGS, accept_scheduler_flags

NAME = "hami-webhook"
_DNS_LABEL = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_LEADER_FLAGS = ("--leader-elect", "--leader-elect-resource-name", "--leader-elect-resource-namespace")
_WITHOUT_EFFECT = {
    **dict.fromkeys(SCHEDULER_FLAGS, "the scheduler is another service"),
    **dict.fromkeys(("--kube-qps", "--kube-burst", "--kube-timeout"), "no Pod waits for a request to the API server"),
    **dict.fromkeys(_LEADER_FLAGS, "every replica answers"),
    "--legacy-metrics": "HAMi has no metrics of admission",
    "--profiling": "there is no pprof; profile the process with py-spy",
}
"""Flags without effect, each with the reason."""


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of one process."""

    http_bind: str = "127.0.0.1:8080"
    """Address of /webhook and the health paths."""
    metrics_bind_address: str = ":9395"
    """Address of /metrics and the health paths without TLS; empty: only at http_bind."""
    cert_file: str = ""
    """PEM file of a given certificate."""
    key_file: str = ""
    tls_secret: str = ""
    """`namespace/name` of the Secret for the webhook's own certificate; without it and without files: plain HTTP."""
    tls_names: tuple[str, ...] = ()
    """DNS names and IP addresses of that certificate."""
    webhook_configuration: str = ""
    """The MutatingWebhookConfiguration to check, and to publish that certificate's authority in."""
    scheduler_name: str = ""
    """The scheduler of Pods that request devices; empty: they keep theirs."""
    overwrite_default_scheduler: bool = True
    """Whether it replaces `default-scheduler`."""
    device_config_file: str = ""
    """HAMi's device config."""
    enable_ascend: bool = False
    """Whether Pods that request Ascend devices are managed."""
    enable_iluvatar: bool = False
    """Whether Pods that request Iluvatar devices are managed."""
    kubeconfig: str = ""
    """Path of a kubeconfig; empty: the usual places."""
    verbosity: int = 0
    without_effect: tuple[str, ...] = ()
    """Flags that were given and have no effect, each with the reason."""


def read_config(arguments: Sequence[str]) -> Config:
    """
    Return the settings in *arguments*.

    Raises:
        ConfigError: with every problem found.
        SystemExit: after `--help`, `--version` or an invalid flag; the text has been printed.
    """
    flags = _flags()
    found = flags.parse_args(arguments)
    config = Config(
        http_bind=found.http_bind,
        metrics_bind_address=found.metrics_bind_address,
        cert_file=found.cert_file,
        key_file=found.key_file,
        tls_secret=found.tls_secret,
        tls_names=tuple(dict.fromkeys(filter(None, found.tls_names.split(",")))),
        webhook_configuration=found.webhook_configuration,
        scheduler_name=found.scheduler_name,
        overwrite_default_scheduler=found.force_overwrite_default_scheduler,
        device_config_file=found.device_config_file,
        enable_ascend=found.enable_ascend,
        enable_iluvatar=found.enable_iluvatar,
        kubeconfig=found.kubeconfig,
        verbosity=max(found.verbosity, 4 if found.debug else 0),
        without_effect=flags.without_effect(found),
    )
    problems = tuple(_problems(config))
    if problems:
        raise ConfigError(problems)
    return config


def _problems(config: Config) -> Iterator[str]:
    """Yield a sentence for each setting that is missing or contradicts another."""
    if not config.device_config_file:
        yield "--device-config-file: is required; it names the resources to manage"
    if bool(config.cert_file) != bool(config.key_file):
        yield "--cert_file and --key_file: give both for TLS, or neither for plain HTTP"
    own = (config.tls_secret, config.tls_names)
    if any(own) and (config.cert_file or config.key_file):
        yield "--tls-secret: is for a certificate that the webhook makes; give it, or --cert_file and --key_file"
    if any(own) and not (all(own) and config.webhook_configuration):
        yield "--tls-secret and --tls-names: give both, and --webhook-configuration, or neither"
    namespace, slash, name = config.tls_secret.partition("/")
    if config.tls_secret and not (slash and _is_dns_name(namespace) and _is_dns_name(name)):
        yield f"--tls-secret: must be NAMESPACE/NAME, not {config.tls_secret!r}"
    for server in config.tls_names:
        if not _is_address(server) and not _is_dns_name(server):
            yield f"--tls-names: must be DNS names or IP addresses, comma-separated, not {server!r}"


def _is_dns_name(text: str) -> bool:
    """Return whether *text* is a DNS subdomain by Kubernetes' rules."""
    return len(text) <= 253 and re.fullmatch(rf"{_DNS_LABEL}(\.{_DNS_LABEL})*", text) is not None


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _flags() -> FlagParser:
    flags = parser(NAME, __version__, "Admits Pods that ask for a share of a device.")
    add, default = flags.add_argument, Config()
    add("--http_bind", default=default.http_bind, help="address of /webhook")
    add("--metrics-bind-address", default=default.metrics_bind_address, help="address of /metrics; empty: none")
    add("--cert_file", default="", help="PEM certificate chain; read again when it changes")
    add("--key_file", default="", help="PEM private key of --cert_file")
    add("--tls-secret", default="", metavar="NAMESPACE/NAME", help="Secret for a certificate that the webhook makes")
    add("--tls-names", default="", metavar="NAME,...", help="DNS names and IP addresses of that certificate")
    add(
        "--webhook-configuration",
        default="",
        metavar="NAME",
        help="MutatingWebhookConfiguration to check for missing resources, and to publish the authority in",
    )
    add("--scheduler-name", default="", help="scheduler of Pods that ask for a share; empty: they keep theirs")
    bool_flag(
        flags,
        "--force-overwrite-default-scheduler",
        default.overwrite_default_scheduler,
        "replace default-scheduler in Pods that ask for a share",
    )
    add("--device-config-file", default="", help="HAMi's device config, YAML; must be given")
    bool_flag(flags, "--enable-ascend", False, "manage Pods that ask for Ascend devices")
    bool_flag(flags, "--enable-iluvatar", False, "manage Pods that ask for Iluvatar devices")
    bool_flag(flags, "--debug", False, "log debug lines, as -v=4")
    accept_scheduler_flags(flags, _WITHOUT_EFFECT)
    return flags

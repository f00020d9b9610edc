"""
The webhook's settings: HAMi's scheduler flags that concern admission, checked all at once.

The other flags of HAMi's scheduler are accepted and do nothing, because its chart passes one list to one process that
is two here.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/cmd/scheduler/main.go
"""

import ipaddress
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hami_webhook import __version__
from hamicommon.config import ConfigError
from hamicommon.runtime.flags import FlagParser, bool_flag, parser
from hamicommon.runtime.hami_flags import SCHEDULER_FLAGS, accept_scheduler_flags

NAME = "hami-webhook"
_DNS_LABEL = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_LEADER_FLAGS = ("--leader-elect", "--leader-elect-resource-name", "--leader-elect-resource-namespace")
_WITHOUT_EFFECT = {
    **dict.fromkeys(SCHEDULER_FLAGS, "the scheduler is a service of its own"),
    **dict.fromkeys(("--kube-qps", "--kube-burst", "--kube-timeout"), "no Pod waits for a request to the API server"),
    **dict.fromkeys(_LEADER_FLAGS, "every replica answers"),
    "--legacy-metrics": "HAMi has no metrics of admission",
    "--profiling": "there is no pprof; py-spy looks into a process from outside",
}
"""Why this service does not heed a flag."""


@dataclass(frozen=True, slots=True)
class Config:
    """What the command line said."""

    http_bind: str = "127.0.0.1:8080"
    """Where /webhook and the health paths are served."""
    metrics_bind_address: str = ":9395"
    """Where /metrics and the health paths are served without TLS; empty: nowhere but at http_bind."""
    cert_file: str = ""
    """PEM files of the server's certificate, given by somebody else."""
    key_file: str = ""
    tls_secret: str = ""
    """`namespace/name` of the Secret for a certificate of our own; neither this nor files: plain HTTP."""
    tls_names: tuple[str, ...] = ()
    """What clients call the server of our own certificate: DNS names, IP addresses."""
    webhook_configuration: str = ""
    """The MutatingWebhookConfiguration that registers us: looked at, and told to trust our own certificate."""
    scheduler_name: str = ""
    """What Pods that ask are given as scheduler; empty leaves them theirs."""
    overwrite_default_scheduler: bool = True
    """Whether Pods that name `default-scheduler` are given ours."""
    device_config_file: str = ""
    """HAMi's device config."""
    enable_ascend: bool = False
    """Whether these vendors' Pods are ours."""
    enable_iluvatar: bool = False
    kubeconfig: str = ""
    """How to reach the API server; without any way quotas are left to the scheduler."""
    verbosity: int = 0
    without_effect: tuple[str, ...] = ()
    """Flags that were given and do nothing, each with the reason."""


def read_config(arguments: Sequence[str]) -> Config:
    """
    Return the settings in *arguments*.

    Raises:
        ConfigError: with every problem found.
        SystemExit: a flag is wrong, or only help or the version was asked for; it has been printed.
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
    """Yield what contradicts itself or is missing."""
    if not config.device_config_file:
        yield "--device-config-file: is required; it names the resources to manage"
    if bool(config.cert_file) != bool(config.key_file):
        yield "--cert_file and --key_file: give both for TLS, or neither for plain HTTP"
    own = (config.tls_secret, config.tls_names)
    if any(own) and (config.cert_file or config.key_file):
        yield "--tls-secret: is for a certificate of our own; give it, or --cert_file and --key_file, not both"
    if any(own) and not (all(own) and config.webhook_configuration):
        yield "--tls-secret and --tls-names: give both, and --webhook-configuration, or neither"
    namespace, slash, name = config.tls_secret.partition("/")
    if config.tls_secret and not (slash and _is_dns_name(namespace) and _is_dns_name(name)):
        yield f"--tls-secret: must be NAMESPACE/NAME, not {config.tls_secret!r}"
    for server in config.tls_names:
        if not _is_address(server) and not _is_dns_name(server):
            yield f"--tls-names: must be DNS names or IP addresses, comma-separated, not {server!r}"


def _is_dns_name(text: str) -> bool:
    """Return whether *text* is a lower-case DNS subdomain as Kubernetes has them."""
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
    add("--tls-secret", default="", metavar="NAMESPACE/NAME", help="Secret to keep a certificate of our own in")
    add("--tls-names", default="", metavar="NAME,...", help="names of our own certificate: DNS names, IP addresses")
    add(
        "--webhook-configuration",
        default="",
        metavar="NAME",
        help="MutatingWebhookConfiguration to look whether it leaves out resources, and publish our own certificate in",
    )
    add("--scheduler-name", default="", help="scheduler of Pods that ask for a share; empty: they keep theirs")
    bool_flag(
        flags,
        "--force-overwrite-default-scheduler",
        default.overwrite_default_scheduler,
        "take over Pods that name default-scheduler",
    )
    add("--device-config-file", default="", help="HAMi's device config, YAML; must be given")
    bool_flag(flags, "--enable-ascend", False, "manage Pods that ask for Ascend devices")
    bool_flag(flags, "--enable-iluvatar", False, "manage Pods that ask for Iluvatar devices")
    bool_flag(flags, "--debug", False, "log debug lines, as -v=4")
    accept_scheduler_flags(flags, _WITHOUT_EFFECT)
    return flags

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
from hamicommon.config.device_config import ConfigError
from hamicommon.runtime.program.flags import words
from hamicommon.runtime.program.hami_flags import SCHEDULER_FLAGS, HamiSchedulerConfig, accept_scheduler_flags
from hamicommon.runtime.program.settings import parser_of, setting, values

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
class Config(HamiSchedulerConfig):
    """The settings of one process."""

    tls_secret: str = setting(
        "--tls-secret", "", "Secret for a certificate that the webhook makes", metavar="NAMESPACE/NAME"
    )
    """Without it and without files: plain HTTP."""
    tls_names: tuple[str, ...] = setting(
        "--tls-names", "", "DNS names and IP addresses of that certificate", read=words, metavar="NAME,..."
    )
    webhook_configuration: str = setting(
        "--webhook-configuration",
        "",
        "MutatingWebhookConfiguration to check for missing resources, and to publish the authority in",
        metavar="NAME",
    )
    scheduler_name: str = setting(
        "--scheduler-name", "", "scheduler of Pods that ask for a share; empty: they keep theirs"
    )
    overwrite_default_scheduler: bool = setting(
        "--force-overwrite-default-scheduler", True, "replace default-scheduler in Pods that ask for a share"
    )
    has_extended_resource: bool = setting(
        "--dra-extended-resource",
        False,
        "move amounts of NVIDIA devices from limits into an annotation, so that Nodes that give devices by "
        "ResourceClaims take the Pods too; HAMi's scheduler does not read it",
    )


def read_config(arguments: Sequence[str]) -> Config:
    """
    Return the settings in *arguments*.

    Raises:
        ConfigError: with every problem found.
        SystemExit: after `--help`, `--version` or an invalid flag; the text has been printed.
    """
    flags = parser_of(Config, NAME, __version__, "Admits Pods that ask for a share of a device.")
    accept_scheduler_flags(flags, _WITHOUT_EFFECT)
    given, problems = values(Config, flags, flags.parse_args(arguments))
    config = Config(**given)
    problems += _problems(config)
    if problems:
        raise ConfigError(tuple(problems))
    return config


def _problems(config: Config) -> Iterator[str]:
    """Yield a sentence for each setting that is missing or contradicts another."""
    yield from config.problems()
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

"""
The webhook's settings: HAMi's scheduler flags that concern admission, checked all at once.

The other flags of HAMi's scheduler are accepted and do nothing, because its chart passes one list to one process that
is two here.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/cmd/scheduler/main.go
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hami_webhook import __version__
from hamicommon.config import ConfigError
from hamicommon.runtime.flags import FlagParser, bool_flag, parser
from hamicommon.runtime.hami_flags import SCHEDULER_FLAGS, accept_scheduler_flags

NAME = "hami-webhook"


@dataclass(frozen=True, slots=True)
class Config:
    """What the command line said."""

    http_bind: str = "127.0.0.1:8080"
    """Where /webhook and the health paths are served."""
    metrics_bind_address: str = ":9395"
    """Where /metrics and the health paths are served without TLS; empty: nowhere but at http_bind."""
    cert_file: str = ""
    """PEM files of the server's certificate; both empty: plain HTTP."""
    key_file: str = ""
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
    """How to reach the API server for ResourceQuotas; without any way they are left to the scheduler."""
    verbosity: int = 0


def read_config(arguments: Sequence[str]) -> Config:
    """
    Return the settings in *arguments*.

    Raises:
        ConfigError: with every problem found.
        SystemExit: a flag is wrong, or only help or the version was asked for; it has been printed.
    """
    found = _flags().parse_args(arguments)
    config = Config(
        http_bind=found.http_bind,
        metrics_bind_address=found.metrics_bind_address,
        cert_file=found.cert_file,
        key_file=found.key_file,
        scheduler_name=found.scheduler_name,
        overwrite_default_scheduler=found.force_overwrite_default_scheduler,
        device_config_file=found.device_config_file,
        enable_ascend=found.enable_ascend,
        enable_iluvatar=found.enable_iluvatar,
        kubeconfig=found.kubeconfig,
        verbosity=max(found.verbosity, 4 if found.debug else 0),
    )
    problems = []
    if not config.device_config_file:
        problems.append("--device-config-file: is required; it names the resources to manage")
    if bool(config.cert_file) != bool(config.key_file):
        problems.append("--cert_file and --key_file: give both for TLS, or neither for plain HTTP")
    if problems:
        raise ConfigError(tuple(problems))
    return config


def _flags() -> FlagParser:
    flags = parser(NAME, __version__, "Admits Pods that ask for a share of a device.")
    add, default = flags.add_argument, Config()
    add("--http_bind", default=default.http_bind, help="address of /webhook")
    add("--metrics-bind-address", default=default.metrics_bind_address, help="address of /metrics; empty: none")
    add("--cert_file", default="", help="PEM certificate chain; read again when it changes")
    add("--key_file", default="", help="PEM private key of --cert_file")
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
    accept_scheduler_flags(flags, dict.fromkeys(SCHEDULER_FLAGS, "the scheduler is a service of its own"))
    return flags

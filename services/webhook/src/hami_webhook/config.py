"""
The webhook's settings: HAMi's scheduler flags that concern admission, checked all at once.

The other flags of HAMi's scheduler are accepted and do nothing, because its chart passes one list to one process that
is two here.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/cmd/scheduler/main.go
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

from hamicommon.errors import HamiError
from hamicommon.runtime import flags

NAME = "hami-webhook"
VERSION = version(NAME)

_SCHEDULER_ONLY = (
    *("--node-scheduler-policy", "--gpu-scheduler-policy", "--node-label-selector", "--kube-qps", "--kube-burst"),
    *("--kube-timeout", "--node-lock-timeout", "--node-lock-retry-timeout"),
    *("--leader-elect-resource-name", "--leader-elect-resource-namespace"),
)
_SCHEDULER_ONLY_BOOLS = ("--profiling", "--leader-elect", "--legacy-metrics")
_IN_DEVICE_CONFIG = (
    *("--cambricon-mlu-name", "--cambricon-mlu-memory", "--cambricon-mlu-cores"),
    *("--dcu-name", "--dcu-memory", "--dcu-cores"),
    *("--mthreads-name", "--mthreads-memory", "--mthreads-cores"),
    *("--metax-name", "--metax-vcount", "--metax-vcore", "--metax-vmemory"),
    *("--kunlun-name", "--kunlun-vcount", "--kunlun-vmemory"),
)


class SettingsError(HamiError):
    """Flags contradict each other; `problems` holds every contradiction."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


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


def read_config(arguments: Sequence[str] | None = None) -> Config:
    """
    Return the settings in *arguments* (default: the process's); leaves on `--help`, `--version` and unknown flags.

    Raises:
        SettingsError: some flags are missing or contradict each other.
    """
    found = _parser().parse_args(arguments)
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
        raise SettingsError(tuple(problems))
    return config


def _parser() -> flags.FlagParser:
    default = Config()
    parser = flags.parser(NAME, VERSION, "Admits Pods that ask for a share of a device.")
    parser.add_argument("--http_bind", default=default.http_bind, help="address of /webhook")
    parser.add_argument("--metrics-bind-address", default=default.metrics_bind_address, help="address of /metrics")
    parser.add_argument("--cert_file", default="", help="PEM certificate chain; read again when it changes")
    parser.add_argument("--key_file", default="", help="PEM private key")
    parser.add_argument("--scheduler-name", default="", help="scheduler that Pods asking for a share are given")
    flags.bool_flag(
        parser,
        "--force-overwrite-default-scheduler",
        default.overwrite_default_scheduler,
        "take over Pods that name default-scheduler",
    )
    parser.add_argument("--device-config-file", default="", help="HAMi's device config (YAML)")
    flags.bool_flag(parser, "--enable-ascend", False, "manage Pods that ask for Ascend devices")
    flags.bool_flag(parser, "--enable-iluvatar", False, "manage Pods that ask for Iluvatar devices")
    flags.bool_flag(parser, "--debug", False, "same as -v=4")
    for name in _SCHEDULER_ONLY:
        flags.ignored_flag(parser, name, "the scheduler's")
    for name in _SCHEDULER_ONLY_BOOLS:
        flags.ignored_flag(parser, name, "the scheduler's", is_bool=True)
    for name in _IN_DEVICE_CONFIG:
        flags.ignored_flag(parser, name, "the device config names resources")
    return parser

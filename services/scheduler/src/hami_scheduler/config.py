"""
The settings, as typed fields, and the command line that sets them.

Accepts all flags of HAMi: a flag has its effect, or `--help` says that it has none. Reads no file and no clock.
Neighbours: `main` starts the process with a `Config`.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/cmd/scheduler/main.go
"""

from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address

from hami_scheduler import __version__
from hami_scheduler.values.request import Policies
from hami_scheduler.values.rules import device_policy_problem, node_policy_problem
from hami_scheduler.values.selector import misspelling
from hamicommon.config import ConfigError, DeviceConfig
from hamicommon.runtime.program.flags import FlagParser, bool_flag, parser, span, wait
from hamicommon.runtime.program.hami_flags import accept_scheduler_flags
from hamicommon.vendor import Chip, named
from hamicommon.vendors import ascend, iluvatar
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.version import NEWEST, WireVersion

NAME = "hami-scheduler"
NODE_LOCK_SECONDS = 300.0
"""HAMi's default for `--node-lock-timeout`."""
DEVICE_SERIES_LIMIT = 2000
"""Most devices for which `--device-metrics=auto` has series; some 4 MiB and 0.1 s a scrape."""
EXPLAIN_ADDRESS = "127.0.0.1:9396"
"""Default address for the questions of people."""

_WITHOUT_EFFECT = {
    "--kube-qps": "the scheduler sends few requests, and the API server has priority and fairness",
    "--kube-burst": "as --kube-qps",
    "--kube-timeout": "every request times out after 30 s",
    "--profiling": "there is no Go profiler here",
    "--force-overwrite-default-scheduler": "the webhook is a separate service",
}


@dataclass(frozen=True, slots=True)
class Config:
    """Every setting of the scheduler."""

    device_config_file: str
    """Resource names and vendor settings, HAMi's YAML."""
    kubeconfig: str = ""
    http_bind: str = "127.0.0.1:8080"
    """Address for kube-scheduler."""
    cert_file: str = ""
    key_file: str = ""
    """With both files the listener uses TLS; renewed files are read again."""
    metrics_bind_address: str = ":9395"
    """Address for Prometheus; if empty, only `http_bind` serves metrics."""
    explain_bind_address: str = ""
    """Address for the questions of people, on this host only; if empty, none are answered."""
    scheduler_name: str = ""
    """Source component of Events."""
    policies: Policies = field(default_factory=Policies)
    prioritizes: bool = False
    """Whether a filter names all Nodes that fit and kube-scheduler chooses."""
    node_label_selector: str = ""
    """Only Nodes with these labels are used."""
    node_lock_timeout_seconds: float = NODE_LOCK_SECONDS
    """Older node locks are ignored."""
    lock_wait_seconds: float = 28.0
    """How long a bind waits for a node lock; 0 fails at once."""
    must_lead: bool = False
    """Decide only while the kube-scheduler beside us holds its Lease."""
    lease_namespace: str = ""
    lease_name: str = ""
    has_legacy_metrics: bool = False
    device_metrics: str = "auto"
    """Series for each device and share: `always`, `never`, or `auto`: up to DEVICE_SERIES_LIMIT devices."""
    has_ascend: bool = False
    has_iluvatar: bool = False
    """Whether the devices of these vendors are placed."""
    without_effect: tuple[str, ...] = ()
    """Flags that were given and have no effect, each with the reason."""
    wire_version: WireVersion = NEWEST
    """The oldest HAMi that must be able to read what we write."""
    hostname: str = ""
    """The identity of the Lease's holder on this host, before `_` and an ID."""
    verbosity: int = 0


def read_config(arguments: Sequence[str], environment: Mapping[str, str], hostname: str) -> Config:
    """
    Return the settings of a command line and *environment* (`HAMI_WIRE_VERSION`, `HAMI_NODELOCK_EXPIRE`).

    Raises:
        ConfigError: with every problem.
        SystemExit: a flag is wrong, or help or the version was printed.
    """
    flags = _flags()
    found = flags.parse_args(arguments)
    policies = Policies.named(found.node_scheduler_policy, found.gpu_scheduler_policy)
    problems = [*policy_problems(policies), *_flag_problems(found)]
    wire_version = NEWEST
    try:
        wire_version = WireVersion.parse(environment.get("HAMI_WIRE_VERSION") or str(NEWEST))
    except DecodeError as error:
        problems.append(f"HAMI_WIRE_VERSION: {error}")
    timeout = found.node_lock_timeout
    if timeout is None:
        timeout = _expiry(environment.get("HAMI_NODELOCK_EXPIRE", ""), problems)
    if problems:
        raise ConfigError(tuple(problems))
    return Config(
        device_config_file=found.device_config_file,
        kubeconfig=found.kubeconfig,
        http_bind=found.http_bind,
        cert_file=found.cert_file,
        key_file=found.key_file,
        metrics_bind_address=found.metrics_bind_address,
        explain_bind_address=found.explain_bind_address,
        scheduler_name=found.scheduler_name,
        policies=policies,
        prioritizes=found.prioritize,
        node_label_selector=found.node_label_selector,
        node_lock_timeout_seconds=timeout,
        lock_wait_seconds=found.node_lock_retry_timeout,
        must_lead=found.leader_elect,
        lease_namespace=found.leader_elect_resource_namespace,
        lease_name=found.leader_elect_resource_name,
        has_legacy_metrics=found.legacy_metrics,
        device_metrics=found.device_metrics,
        has_ascend=found.enable_ascend,
        has_iluvatar=found.enable_iluvatar,
        without_effect=flags.without_effect(found),
        wire_version=wire_version,
        hostname=hostname,
        verbosity=max(found.verbosity, 4 if found.debug else 0),
    )


def _flag_problems(found: Namespace) -> Iterator[str]:
    """Yield what is wrong with flags that are valid one by one."""
    misspelt = misspelling(found.node_label_selector)
    if misspelt is not None:
        yield (
            f"--node-label-selector: {misspelt!r} is not a requirement on labels; write key=value, key!=value, "
            "key in (a,b), key notin (a,b), key or !key, with commas in between"
        )
    if not found.device_config_file:
        yield "--device-config-file: is required; it names the resources to manage"
    if bool(found.cert_file) != bool(found.key_file):
        yield "--cert_file and --key_file: give both for TLS, or neither for plain HTTP"
    if found.leader_elect and not (found.leader_elect_resource_name and found.leader_elect_resource_namespace):
        yield "--leader-elect: needs --leader-elect-resource-name and --leader-elect-resource-namespace"
    if found.explain_bind_address and not _is_loopback(found.explain_bind_address):
        yield (
            f"--explain-bind-address {found.explain_bind_address}: must be a loopback address, such as "
            f"{EXPLAIN_ADDRESS}, because answers show all namespaces; kubectl exec and port-forward reach it"
        )


def policy_problems(policies: Policies) -> Iterator[str]:
    """Yield what is wrong with *policies*, with the flag. HAMi silently uses another policy."""
    problems = {
        "--node-scheduler-policy": node_policy_problem(policies.node),
        "--gpu-scheduler-policy": device_policy_problem(policies.device),
    }
    yield from (f"{flag}: {problem}" for flag, problem in problems.items() if problem)


def left_out(config: Config, devices: DeviceConfig) -> dict[str, str]:
    """Return the resources of *devices* that are not placed, each with the flag that enables it."""
    ascends, iluvatars = devices[ascend.SECTION].chips, devices[iluvatar.SECTION]
    chips: dict[str, Sequence[Chip]] = {
        "--enable-ascend": () if config.has_ascend else ascends,
        "--enable-iluvatar": () if config.has_iluvatar else iluvatars,
    }
    return {
        name: flag
        for flag, found in chips.items()
        for chip in found
        for name in named(chip.resource_count_name, chip.resource_memory_name, chip.resource_core_name)
    }


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _expiry(text: str, problems: list[str]) -> float:
    if not text:
        return NODE_LOCK_SECONDS
    try:
        return span(text)
    except ArgumentTypeError as error:
        problems.append(f"HAMI_NODELOCK_EXPIRE: {error}")
        return NODE_LOCK_SECONDS


def _flags() -> FlagParser:
    flags = parser(
        NAME,
        __version__,
        "Places shares on devices: the extender of kube-scheduler. "
        f"Other commands: `{NAME} explain`, `simulate` and `snapshot`; see their --help.",
    )
    add = flags.add_argument
    add("--http_bind", default="127.0.0.1:8080", help="address for kube-scheduler")
    add("--cert_file", default="", help="TLS certificate; needs --key_file")
    add("--key_file", default="", help="private key of --cert_file")
    add(
        "--metrics-bind-address", default=":9395", help="address for Prometheus; empty: only --http_bind serves metrics"
    )
    add("--scheduler-name", default="", help="source component of Events")
    add("--node-scheduler-policy", default="binpack", help="binpack or spread, for Pods without the annotation")
    add(
        "--gpu-scheduler-policy",
        default="spread",
        help="binpack, spread, topology-aware, mutex, numa or a comma list of them, for Pods without the annotation",
    )
    bool_flag(flags, "--prioritize", False, "name all Nodes that fit and rank them; kube-scheduler chooses")
    add(
        "--node-label-selector",
        default="",
        help="use only Nodes with these labels; any Kubernetes label selector",
    )
    add("--node-lock-timeout", type=span, default=None, help="ignore node locks older than this (default: 5m)")
    add("--node-lock-retry-timeout", type=wait, default="28s", help="how long a bind waits for a node lock")
    bool_flag(flags, "--leader-elect", False, "decide only while the kube-scheduler on this host leads")
    add("--leader-elect-resource-name", default="", help="name of kube-scheduler's Lease")
    add("--leader-elect-resource-namespace", default="", help="namespace of the Lease")
    add(
        "--explain-bind-address",
        default=EXPLAIN_ADDRESS,
        help="loopback address for explain, simulate and snapshot; empty: none",
    )
    add(
        "--device-metrics",
        choices=("auto", "always", "never"),
        default="auto",
        help=f"export series for each device and share; auto: up to {DEVICE_SERIES_LIMIT} devices",
    )
    bool_flag(flags, "--enable-ascend", False, "place Ascend devices")
    bool_flag(flags, "--enable-iluvatar", False, "place Iluvatar devices")
    bool_flag(flags, "--legacy-metrics", False, "export metrics also under the names of HAMi 2.8 and before")
    add("--device-config-file", default="", help="HAMi's device config, YAML (required)")
    bool_flag(flags, "--debug", False, "log debug lines, as -v=4")
    accept_scheduler_flags(flags, _WITHOUT_EFFECT)
    return flags

"""
What an operator can set, as typed fields, and the command line it comes from.

Owns HAMi's whole flag list: a flag either has its effect or says in `--help` that it has none. Reads no file and no
clock. Neighbours: `main` starts the process with a `Config`.
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
from hamicommon.runtime.flags import FlagParser, bool_flag, parser, span, wait
from hamicommon.runtime.hami_flags import accept_scheduler_flags
from hamicommon.vendor import Chip, named
from hamicommon.vendors import ascend, iluvatar
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.version import NEWEST, WireVersion

NAME = "hami-scheduler"
NODE_LOCK_SECONDS = 300.0
"""HAMi's default for `--node-lock-timeout`."""
DEVICE_SERIES_LIMIT = 2000
"""Devices up to which `--device-metrics=auto` has a series for each; some 4 MiB and 0.1 s a scrape."""
EXPLAIN_ADDRESS = "127.0.0.1:9396"
"""Where people's questions are answered, and asked, by default."""

_WITHOUT_EFFECT = {
    "--kube-qps": "requests are few by design and the API server has priority and fairness",
    "--kube-burst": "as --kube-qps",
    "--kube-timeout": "every request has a deadline of 30 s",
    "--profiling": "there is no Go profiler here",
    "--force-overwrite-default-scheduler": "the webhook is a service of its own",
}


@dataclass(frozen=True, slots=True)
class Config:
    """Every setting of the scheduler."""

    device_config_file: str
    """Resource names and vendor settings, HAMi's YAML."""
    kubeconfig: str = ""
    http_bind: str = "127.0.0.1:8080"
    """Where kube-scheduler calls."""
    cert_file: str = ""
    key_file: str = ""
    """With both, the listener speaks TLS; renewed files are picked up."""
    metrics_bind_address: str = ":9395"
    """Where Prometheus scrapes; empty: nowhere but at `http_bind`, which serves the same numbers."""
    explain_bind_address: str = ""
    """Where people's questions are answered, on this host only; empty answers none."""
    scheduler_name: str = ""
    """Source component of Events."""
    policies: Policies = field(default_factory=Policies)
    prioritizes: bool = False
    """Whether every Node that fits is named and ranked, and kube-scheduler chooses."""
    node_label_selector: str = ""
    """Only Nodes with these labels are offered."""
    node_lock_timeout_seconds: float = NODE_LOCK_SECONDS
    """Older node locks are anybody's."""
    lock_wait_seconds: float = 28.0
    """How long a bind waits for a node lock; 0 fails at once."""
    must_lead: bool = False
    """Decide only while the kube-scheduler beside us holds its Lease."""
    lease_namespace: str = ""
    lease_name: str = ""
    has_legacy_metrics: bool = False
    device_metrics: str = "auto"
    """Series for each device and share: `always`, `never`, or `auto`, while the cluster is not too large for them."""
    has_ascend: bool = False
    has_iluvatar: bool = False
    """Whether the devices of these vendors are placed."""
    without_effect: tuple[str, ...] = ()
    """Flags that were given and do nothing, each with the reason."""
    wire_version: WireVersion = NEWEST
    """The oldest HAMi whose readers must understand what is written."""
    hostname: str = ""
    """What the holder of the Lease on this host is called, before `_` and an ID."""
    verbosity: int = 0


def read_config(arguments: Sequence[str], environment: Mapping[str, str], hostname: str) -> Config:
    """
    Return the settings of a command line and *environment* (`HAMI_WIRE_VERSION`, `HAMI_NODELOCK_EXPIRE`).

    Raises:
        ConfigError: with every problem found.
        SystemExit: a flag is wrong, or only help or the version was asked for; it has been printed.
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
    """Yield what is wrong with the values of flags, or with their company, beyond what each can be."""
    misspelt = misspelling(found.node_label_selector)
    if misspelt is not None:
        yield (
            f"--node-label-selector: {misspelt!r} is no requirement on labels; write key=value, key!=value, "
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
            f"--explain-bind-address {found.explain_bind_address}: must be an address of this host alone, such as "
            f"{EXPLAIN_ADDRESS}, because it tells of every namespace; kubectl exec and port-forward reach it"
        )


def policy_problems(policies: Policies) -> Iterator[str]:
    """Yield what is wrong with *policies*, with the flag of each; HAMi would take the opposite without a word."""
    faults = {
        "--node-scheduler-policy": node_policy_problem(policies.node),
        "--gpu-scheduler-policy": device_policy_problem(policies.device),
    }
    yield from (f"{flag}: {fault}" for flag, fault in faults.items() if fault)


def left_out(config: Config, devices: DeviceConfig) -> dict[str, str]:
    """Return the resources of *devices* that are not placed for want of a flag, and the flag."""
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
        f"`{NAME} explain --help`, `simulate` and `snapshot`: what people ask of it.",
    )
    add = flags.add_argument
    add("--http_bind", default="127.0.0.1:8080", help="where kube-scheduler calls")
    add("--cert_file", default="", help="certificate; with --key_file the listener speaks TLS")
    add("--key_file", default="", help="private key of --cert_file")
    add("--metrics-bind-address", default=":9395", help="where Prometheus scrapes; empty: only at --http_bind")
    add("--scheduler-name", default="", help="source component of Events")
    add("--node-scheduler-policy", default="binpack", help="binpack or spread, where a Pod does not say")
    add(
        "--gpu-scheduler-policy",
        default="spread",
        help="binpack, spread, topology-aware, mutex, numa or a comma list of them, where a Pod does not say",
    )
    bool_flag(flags, "--prioritize", False, "name every Node that fits and rank them; kube-scheduler chooses")
    add(
        "--node-label-selector",
        default="",
        help="only Nodes with these labels are offered; k=v,... or all of a selector",
    )
    add("--node-lock-timeout", type=span, default=None, help="older node locks are anybody's (default: 5m)")
    add("--node-lock-retry-timeout", type=wait, default="28s", help="how long a bind waits for a node lock")
    bool_flag(flags, "--leader-elect", False, "decide only while the kube-scheduler beside us leads")
    add("--leader-elect-resource-name", default="", help="the Lease kube-scheduler competes for")
    add("--leader-elect-resource-namespace", default="", help="its namespace")
    add(
        "--explain-bind-address",
        default=EXPLAIN_ADDRESS,
        help="where explain, simulate and snapshot ask, on this host only; empty: nowhere",
    )
    add(
        "--device-metrics",
        choices=("auto", "always", "never"),
        default="auto",
        help=f"series for each device and share; auto: up to {DEVICE_SERIES_LIMIT} devices",
    )
    bool_flag(flags, "--enable-ascend", False, "place Ascend devices")
    bool_flag(flags, "--enable-iluvatar", False, "place Iluvatar devices")
    bool_flag(flags, "--legacy-metrics", False, "metrics also under HAMi's names of 2.8 and before")
    add("--device-config-file", default="", help="HAMi's device config, YAML; must be given")
    bool_flag(flags, "--debug", False, "log debug lines, as -v=4")
    accept_scheduler_flags(flags, _WITHOUT_EFFECT)
    return flags

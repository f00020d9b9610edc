"""
The settings, as typed fields, and the command line that sets them.

Accepts all flags of HAMi: a flag has its effect, or `--help` says that it has none. Reads no file and no clock.
Neighbours: `main` starts the process with a `Config`.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/cmd/scheduler/main.go
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address

from hami_scheduler import __version__
from hami_scheduler.values.policies import Policies, device_policy_problem, node_policy_problem
from hamicommon.config.device_config import ConfigError, DeviceConfig
from hamicommon.runtime.program.flags import span, wait
from hamicommon.runtime.program.hami_flags import HamiSchedulerConfig, accept_scheduler_flags
from hamicommon.runtime.program.settings import parser_of, setting, values
from hamicommon.vendors import ascend, iluvatar
from hamicommon.vendors.description import Chip, named
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.version import NEWEST, WireVersion

NAME = "hami-scheduler"
DESCRIPTION = (
    "Places shares on devices: the extender of kube-scheduler. "
    f"Other commands: `{NAME} explain`, `simulate`, `fits` and `snapshot`; see their --help."
)
DEVICE_SERIES_LIMIT = 2000
"""Most devices for which `--device-metrics=auto` has series; some 4 MiB and 0.1 s a scrape."""
EXPLAIN_ADDRESS = "127.0.0.1:9396"
"""Default address for the questions of people."""

# The API server matches objects; this only finds mistakes early.
# Source: https://github.com/kubernetes/apimachinery/blob/v0.34.1/pkg/labels/selector.go (`Parse`)
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_DNS_LABEL = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_KEY = rf"(?=[^/]{{1,253}}/|[^/]*$)(?:{_DNS_LABEL}(?:\.{_DNS_LABEL})*/)?{_NAME}"
_VALUE = rf"(?:{_NAME})?"
_REQUIREMENT = re.compile(
    rf"!\s*(?P<absent>{_KEY})"
    rf"|(?P<key>{_KEY})(?:\s*(?:=|==|!=)\s*{_VALUE}|\s*[<>]\s*-?[0-9]{{1,18}}"
    rf"|\s+(?:in|notin)\s*\(\s*{_VALUE}(?:\s*,\s*{_VALUE})*\s*\))?"
)
_COMMA = re.compile(r",(?![^(]*\))")
"""A comma between two requirements, not within a list of values."""

_WITHOUT_EFFECT = {
    "--kube-qps": "the scheduler sends few requests, and the API server has priority and fairness",
    "--kube-burst": "as --kube-qps",
    "--kube-timeout": "every request times out after 30 s",
    "--profiling": "there is no Go profiler here",
    "--force-overwrite-default-scheduler": "the webhook is a separate service",
}


@dataclass(frozen=True, slots=True)
class Config(HamiSchedulerConfig):
    """Every setting of the scheduler."""

    scheduler_name: str = setting("--scheduler-name", "", "source component of Events, and schedulerName of our Pods")
    node_policy: str = setting(
        "--node-scheduler-policy", "binpack", "binpack or spread, for Pods without the annotation"
    )
    device_policy: str = setting(
        "--gpu-scheduler-policy",
        "spread",
        "binpack, spread, topology-aware, mutex, numa or a comma list of them, for Pods without the annotation",
    )
    prioritizes: bool = setting("--prioritize", False, "name all Nodes that fit and rank them; kube-scheduler chooses")
    node_label_selector: str = setting(
        "--node-label-selector", "", "use only Nodes with these labels; any Kubernetes label selector"
    )
    node_lock_timeout_seconds: float = setting(
        "--node-lock-timeout", "5m", "ignore node locks older than this", read=span, variable="HAMI_NODELOCK_EXPIRE"
    )
    lock_wait_seconds: float = setting(
        "--node-lock-retry-timeout", "28s", "how long a bind waits for a node lock; 0 fails at once", read=wait
    )
    must_lead: bool = setting("--leader-elect", False, "decide only while the kube-scheduler on this host leads")
    lease_name: str = setting("--leader-elect-resource-name", "", "name of kube-scheduler's Lease")
    lease_namespace: str = setting("--leader-elect-resource-namespace", "", "namespace of the Lease")
    explain_bind_address: str = setting(
        "--explain-bind-address",
        EXPLAIN_ADDRESS,
        "loopback address for explain, simulate, fits and snapshot; empty: none",
    )
    device_metrics: str = setting(
        "--device-metrics",
        "auto",
        f"export series for each device and share; auto: up to {DEVICE_SERIES_LIMIT} devices",
        choices=("auto", "always", "never"),
    )
    has_legacy_metrics: bool = setting(
        "--legacy-metrics", False, "export metrics also under the names of HAMi 2.8 and before"
    )
    has_dra: bool = setting(
        "--dra", False, "count what ResourceClaims hold; needs Kubernetes 1.34 and rights on claims and slices"
    )
    wire_version: WireVersion = NEWEST
    """The oldest HAMi that must be able to read what we write, from HAMI_WIRE_VERSION."""
    hostname: str = ""
    """The identity of the Lease's holder on this host, before `_` and an ID."""

    @property
    def policies(self) -> Policies:
        """The policies of Pods without annotations."""
        return Policies.named(self.node_policy, self.device_policy)


def read_config(arguments: Sequence[str], environment: Mapping[str, str], hostname: str) -> Config:
    """
    Return the settings of a command line and *environment* (`HAMI_WIRE_VERSION`, `HAMI_NODELOCK_EXPIRE`).

    Raises:
        ConfigError: with every problem.
        SystemExit: a flag is wrong, or help or the version was printed.
    """
    flags = parser_of(Config, NAME, __version__, DESCRIPTION)
    accept_scheduler_flags(flags, _WITHOUT_EFFECT)
    given, problems = values(Config, flags, flags.parse_args(arguments), environment)
    config = Config(**given, hostname=hostname)
    problems += [*policy_problems(config.policies), *_flag_problems(config)]
    try:
        config = replace(config, wire_version=WireVersion.parse(environment.get("HAMI_WIRE_VERSION") or str(NEWEST)))
    except DecodeError as error:
        problems.append(f"HAMI_WIRE_VERSION: {error}")
    if problems:
        raise ConfigError(tuple(problems))
    return config


def _flag_problems(config: Config) -> Iterator[str]:
    """Yield what is wrong with flags that are valid one by one."""
    yield from config.problems()
    misspelt = misspelling(config.node_label_selector)
    if misspelt is not None:
        yield (
            f"--node-label-selector: {misspelt!r} is not a requirement on labels; write key=value, key!=value, "
            "key in (a,b), key notin (a,b), key or !key, with commas in between"
        )
    if config.must_lead and not (config.lease_name and config.lease_namespace):
        yield "--leader-elect: needs --leader-elect-resource-name and --leader-elect-resource-namespace"
    if config.explain_bind_address and not _is_loopback(config.explain_bind_address):
        yield (
            f"--explain-bind-address {config.explain_bind_address}: must be a loopback address, such as "
            f"{EXPLAIN_ADDRESS}, because answers show all namespaces; kubectl exec and port-forward reach it"
        )


def misspelling(text: str) -> str | None:
    """
    Return the part of *text* that is no requirement on labels, None if *text* is valid or empty.

    >>> misspelling("gpu=on,!old,zone in (a, b)"), misspelling("gpu=on,zone=a=b"), misspelling("gpu=on,")
    (None, 'zone=a=b', '')
    """
    if not text.strip():
        return None
    pieces = (piece.strip() for piece in _COMMA.split(text))
    return next((piece for piece in pieces if not _REQUIREMENT.fullmatch(piece)), None)


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

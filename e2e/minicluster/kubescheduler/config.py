"""
Decode a KubeSchedulerConfiguration.

Owns the supported subset: names and sampling of profiles, back-off, extenders, leader election. Plugin lists are
accepted and ignored.
Source: k8s.io/kube-scheduler/config/v1/types.go, pkg/scheduler/apis/config/v1/defaults.go.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hamicommon.model import Object

API_VERSION = "kubescheduler.config.k8s.io/v1"
DEFAULT_SCHEDULER = "default-scheduler"
EXTENDER_TIMEOUT_SECONDS = 5.0

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


class ConfigError(ValueError):
    """The configuration is invalid. The message names the field."""


@dataclass(frozen=True)
class ExtenderConfig:
    """One HTTP extender."""

    url_prefix: str
    filter_verb: str
    prioritize_verb: str
    bind_verb: str
    weight: int
    timeout_seconds: float
    is_node_cache_capable: bool
    is_ignorable: bool
    managed: dict[str, bool]
    """By resource, whether the scheduler itself ignores it. Without any, the extender is called for every Pod."""
    enables_https: bool
    is_insecure: bool
    server_name: str
    ca_file: str
    cert_file: str
    key_file: str


@dataclass(frozen=True)
class LeaderElection:
    """The settings of leader election."""

    is_on: bool
    namespace: str
    name: str
    lease_seconds: float
    renew_seconds: float
    retry_seconds: float


@dataclass(frozen=True)
class Config:
    """The whole configuration."""

    percentages: dict[str, int]
    """By scheduler name, the percentage of Nodes to score. 0 means adaptive."""
    extenders: tuple[ExtenderConfig, ...]
    initial_backoff_seconds: float
    max_backoff_seconds: float
    leader_election: LeaderElection

    @property
    def ignored_resources(self) -> frozenset[str]:
        """The resources that only extenders count."""
        return frozenset(
            name for extender in self.extenders for name, is_ignored in extender.managed.items() if is_ignored
        )


def load(path: Path) -> Config:
    """
    Read the configuration file at *path*.

    Raises: ConfigError with the wrong field.
    """
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(found, dict) or found.get("kind") != "KubeSchedulerConfiguration":
        raise ConfigError(f"{path}: kind must be KubeSchedulerConfiguration")
    if found.get("apiVersion") != API_VERSION:
        raise ConfigError(f"{path}: apiVersion must be {API_VERSION}, found {found.get('apiVersion')!r}")
    return parse(found)


def parse(found: Object) -> Config:
    """
    Return the configuration in an object.

    Raises: ConfigError with the wrong field.
    """
    common = found.get("percentageOfNodesToScore") or 0
    percentages: dict[str, int] = {}
    for index, profile in enumerate(found.get("profiles") or [{}]):
        name = profile.get("schedulerName") or DEFAULT_SCHEDULER
        if name in percentages:
            raise ConfigError(f"profiles[{index}].schedulerName: Duplicate value: {name!r}")
        own = profile.get("percentageOfNodesToScore")
        percentages[name] = common if own is None else own
    extenders = tuple(
        _extender(f"extenders[{index}]", extender) for index, extender in enumerate(found.get("extenders") or ())
    )
    if sum(1 for extender in extenders if extender.bind_verb) > 1:
        raise ConfigError("extenders: found multiple extenders with bindVerb, only one can implement it")
    return Config(
        percentages,
        extenders,
        float(found.get("podInitialBackoffSeconds") or 1),
        float(found.get("podMaxBackoffSeconds") or 10),
        _leader_election(found.get("leaderElection") or {}),
    )


def _extender(field: str, found: Object) -> ExtenderConfig:
    if not found.get("urlPrefix"):
        raise ConfigError(f"{field}.urlPrefix: Required value: the URL to which the extender's verbs are appended")
    weight = found.get("weight") or 0
    if found.get("prioritizeVerb") and weight <= 0:
        raise ConfigError(f"{field}.weight: {weight}: must have a positive weight applied to it")
    tls = found.get("tlsConfig") or {}
    prefix = found["urlPrefix"].rstrip("/")
    return ExtenderConfig(
        url_prefix=prefix,
        filter_verb=found.get("filterVerb") or "",
        prioritize_verb=found.get("prioritizeVerb") or "",
        bind_verb=found.get("bindVerb") or "",
        weight=weight,
        timeout_seconds=duration(found.get("httpTimeout")) or EXTENDER_TIMEOUT_SECONDS,
        is_node_cache_capable=bool(found.get("nodeCacheCapable")),
        is_ignorable=bool(found.get("ignorable")),
        managed={entry["name"]: bool(entry.get("ignoredByScheduler")) for entry in found.get("managedResources") or ()},
        enables_https=bool(found.get("enableHTTPS")) or prefix.startswith("https://"),
        is_insecure=bool(tls.get("insecure")),
        server_name=tls.get("serverName") or "",
        ca_file=tls.get("caFile") or "",
        cert_file=tls.get("certFile") or "",
        key_file=tls.get("keyFile") or "",
    )


def _leader_election(found: Object) -> LeaderElection:
    return LeaderElection(
        is_on=found.get("leaderElect", True) is not False,
        namespace=found.get("resourceNamespace") or "kube-system",
        name=found.get("resourceName") or "kube-scheduler",
        lease_seconds=duration(found.get("leaseDuration")) or 15.0,
        renew_seconds=duration(found.get("renewDeadline")) or 10.0,
        retry_seconds=duration(found.get("retryPeriod")) or 2.0,
    )


def duration(found: Any) -> float:
    """
    Return a metav1.Duration in seconds, or 0 for None.

    Raises: ConfigError for a text that Go does not parse.
    """
    if not found or found == "0":
        return 0.0
    parts = _DURATION.findall(str(found))
    if "".join(number + unit for number, unit in parts) != str(found):
        raise ConfigError(f"{found!r} is not a duration such as 30s or 1m30s")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)

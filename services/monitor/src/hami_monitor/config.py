"""
The monitor's settings: HAMi's flags and environment, and a few more.

Owns names, defaults and units. Reports all problems at once. Must never read the environment itself.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/cmd/vGPUmonitor/main.go
"""

from argparse import ArgumentTypeError
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hami_monitor import __version__
from hami_monitor.decide.watchdog.findings import Kind
from hamicommon.config.device_config import ConfigError
from hamicommon.runtime.program.flags import span, whole, words
from hamicommon.runtime.program.hami_flags import accept_klog_flags
from hamicommon.runtime.program.settings import ServiceConfig, parser_of, setting, values

NAME = "hami-monitor"
DESCRIPTION = (
    "Exports what each container uses of its Node's devices, and keeps containers from slowing down each other."
)
RESYNC_SECONDS = 300.0


def _kinds(text: str) -> frozenset[Kind]:
    """Return the kinds of findings that *text* lists."""
    known = {kind.value: kind for kind in Kind}
    listed = [word.strip() for word in text.split(",") if word.strip()]
    for word in listed:
        if word not in known:
            raise ArgumentTypeError(f"{word!r} is not one of {', '.join(known)}")
    return frozenset(known[word] for word in listed)


@dataclass(frozen=True, slots=True)
class Config(ServiceConfig):
    """One run's settings."""

    node_name: str
    """The Node this runs on, from NODE_NAME."""
    hook_path: str
    """Directory with `containers/`, from HOOK_PATH; the device plugin's HOOK_PATH plus `/vgpu`."""
    resync_seconds: float = RESYNC_SECONDS
    """Grace time before the directory of an unknown Pod is deleted, from HAMI_RESYNC_INTERVAL."""
    metrics_bind_address: str = setting("--metrics-bind-address", ":9394", "host:port of /metrics and the probes")
    has_legacy_metrics: bool = setting("--legacy-metrics", False, "metrics also under HAMi's names of 2.8 and before")
    driver_root_here: str = setting("--driver-root-ctr-path", "/driver-root", "mount of the driver root, if any")
    round_seconds: float = setting("--feedback-interval", "5s", "time between two rounds", read=span)
    has_watchdog: bool = setting(
        "--watchdog", True, "compare processes on devices with grants; needs the Node's pid namespace"
    )
    watchdog_exempt_namespaces: tuple[str, ...] = setting(
        "--watchdog-exempt-namespaces",
        "kube-system,gpu-operator",
        "namespaces whose Pods may use any device, separated by commas",
        read=words,
    )
    """Where the Pods run that use devices for all others, such as an MPS server or a driver's tests."""
    watchdog_evict: frozenset[Kind] = setting(
        "--watchdog-evict",
        "",
        "findings for which a Pod is evicted, separated by commas: " + ", ".join(kind.value for kind in Kind),
        read=_kinds,
    )
    cgroup_root: str = setting(
        "--cgroup-root",
        "/sys/fs/cgroup",
        "mount of the Node's cgroup v2, under the host's path; for what the driver counts of each container",
    )
    memory_margin_mib: int = setting(
        "--memory-margin-mib", 0, "how far the driver's limit is above a share, as the device plugin has it", read=whole
    )
    warnings: tuple[str, ...] = ()
    """One sentence for each invalid setting that was replaced by its default."""


def read_config(arguments: Sequence[str], environment: Mapping[str, str]) -> Config:
    """
    Return the settings in *arguments* and *environment*.

    Raises:
        ConfigError: NODE_NAME or HOOK_PATH is missing. HOOK_PATH may be empty, as in HAMi.
        SystemExit: after `--help`, `--version` or an invalid flag; the text has been printed.
    """
    flags = parser_of(Config, NAME, __version__, DESCRIPTION)
    accept_klog_flags(flags)
    given, problems = values(Config, flags, flags.parse_args(arguments))
    if not environment.get("NODE_NAME"):
        problems.append("environment variable NODE_NAME is missing: set it to the Node's name (spec.nodeName)")
    if "HOOK_PATH" not in environment:
        problems.append("environment variable HOOK_PATH is missing: set it to the directory that holds containers/")
    if problems:
        raise ConfigError(tuple(problems))
    resync_seconds, warnings = _resync(environment.get("HAMI_RESYNC_INTERVAL", ""))
    return Config(
        environment["NODE_NAME"], environment["HOOK_PATH"], resync_seconds=resync_seconds, warnings=warnings, **given
    )


def _resync(text: str) -> tuple[float, tuple[str, ...]]:
    """Return the seconds in *text* and no warning; the default and a warning if it is not a duration."""
    if not text:
        return RESYNC_SECONDS, ()
    try:
        return span(text), ()
    except ArgumentTypeError as error:
        return RESYNC_SECONDS, (f"environment variable HAMI_RESYNC_INTERVAL: {error}; using {RESYNC_SECONDS:.0f}s",)

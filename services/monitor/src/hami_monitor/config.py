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
from hamicommon.config import ConfigError
from hamicommon.runtime.program.flags import FlagParser, bool_flag, parser, span
from hamicommon.runtime.program.hami_flags import accept_klog_flags

NAME = "hami-monitor"
DESCRIPTION = (
    "Exports what each container uses of its Node's devices, and keeps containers from slowing down each other."
)
RESYNC_SECONDS = 300.0
EXEMPT_NAMESPACES = ("kube-system", "gpu-operator")
"""Where the Pods run that use devices for all others, such as an MPS server or a driver's tests."""


@dataclass(frozen=True, slots=True)
class Config:
    """One run's settings."""

    node_name: str
    """The Node this runs on, from NODE_NAME."""
    hook_path: str
    """Directory with `containers/`, from HOOK_PATH; the device plugin's HOOK_PATH plus `/vgpu`."""
    resync_seconds: float = RESYNC_SECONDS
    """Grace time before the directory of an unknown Pod is deleted, from HAMI_RESYNC_INTERVAL."""
    round_seconds: float = 5.0
    """Time between two rounds of scan and feedback."""
    metrics_bind_address: str = ":9394"
    has_legacy_metrics: bool = False
    """Also export the metric names HAMi used up to 2.8."""
    kubeconfig: str = ""
    verbosity: int = 0
    driver_root_here: str = "/driver-root"
    """Where the host's driver root is mounted in this container."""
    has_watchdog: bool = True
    """Compare the processes on the devices with the grants."""
    watchdog_exempt_namespaces: tuple[str, ...] = EXEMPT_NAMESPACES
    """Namespaces whose Pods the watchdog does not judge."""
    watchdog_evict: frozenset[Kind] = frozenset()
    """Findings for which Pods are evicted."""
    cgroup_root: str = "/sys/fs/cgroup"
    """Where the Node's cgroup version 2 is mounted here, under the same path as on the host."""
    warnings: tuple[str, ...] = ()
    """One sentence for each invalid setting that was replaced by its default."""
    without_effect: tuple[str, ...] = ()
    """Flags that were given and have no effect, each with the reason."""


def read_config(arguments: Sequence[str], environment: Mapping[str, str]) -> Config:
    """
    Return the settings in *arguments* and *environment*.

    Raises:
        ConfigError: NODE_NAME or HOOK_PATH is missing, or a finding is unknown. HOOK_PATH may be empty, as in HAMi.
        SystemExit: after `--help`, `--version` or an invalid flag; the text has been printed.
    """
    flags = _flags()
    given = flags.parse_args(arguments)
    problems = []
    if not environment.get("NODE_NAME"):
        problems.append("environment variable NODE_NAME is missing: set it to the Node's name (spec.nodeName)")
    if "HOOK_PATH" not in environment:
        problems.append("environment variable HOOK_PATH is missing: set it to the directory that holds containers/")
    evict, unknown = _kinds(given.watchdog_evict)
    problems += unknown
    if problems:
        raise ConfigError(tuple(problems))
    resync_seconds, warnings = _resync(environment.get("HAMI_RESYNC_INTERVAL", ""))
    return Config(
        node_name=environment["NODE_NAME"],
        hook_path=environment["HOOK_PATH"],
        resync_seconds=resync_seconds,
        round_seconds=given.feedback_interval,
        metrics_bind_address=given.metrics_bind_address,
        has_legacy_metrics=given.legacy_metrics,
        driver_root_here=given.driver_root_ctr_path,
        has_watchdog=given.watchdog,
        watchdog_exempt_namespaces=tuple(filter(None, given.watchdog_exempt_namespaces.split(","))),
        watchdog_evict=evict,
        cgroup_root=given.cgroup_root,
        kubeconfig=given.kubeconfig,
        verbosity=given.verbosity,
        warnings=warnings,
        without_effect=flags.without_effect(given),
    )


def _flags() -> FlagParser:
    flags = parser(NAME, __version__, DESCRIPTION)
    flags.add_argument("--metrics-bind-address", default=":9394", help="host:port of /metrics and the probes")
    bool_flag(flags, "--legacy-metrics", False, "metrics also under HAMi's names of 2.8 and before")
    flags.add_argument("--driver-root-ctr-path", default="/driver-root", help="mount of the driver root, if any")
    flags.add_argument("--feedback-interval", type=span, default="5s", help="time between two rounds")
    bool_flag(flags, "--watchdog", True, "compare processes on devices with grants; needs the Node's pid namespace")
    flags.add_argument(
        "--watchdog-exempt-namespaces",
        default=",".join(EXEMPT_NAMESPACES),
        help="namespaces whose Pods may use any device, separated by commas",
    )
    flags.add_argument(
        "--watchdog-evict",
        default="",
        help="findings for which a Pod is evicted, separated by commas: " + ", ".join(kind.value for kind in Kind),
    )
    flags.add_argument(
        "--cgroup-root",
        default="/sys/fs/cgroup",
        help="mount of the Node's cgroup v2, under the host's path; for what the driver counts of each container",
    )
    accept_klog_flags(flags)
    return flags


def _kinds(text: str) -> tuple[frozenset[Kind], list[str]]:
    """Return the kinds of findings that *text* lists, and a sentence for each unknown word."""
    known = {kind.value: kind for kind in Kind}
    words = [word.strip() for word in text.split(",") if word.strip()]
    problems = [f"--watchdog-evict: {word!r} is not one of {', '.join(known)}" for word in words if word not in known]
    return frozenset(known[word] for word in words if word in known), problems


def _resync(text: str) -> tuple[float, tuple[str, ...]]:
    """Return the seconds in *text* and no warning; the default and a warning if it is not a duration."""
    if not text:
        return RESYNC_SECONDS, ()
    try:
        return span(text), ()
    except ArgumentTypeError as error:
        return RESYNC_SECONDS, (f"environment variable HAMI_RESYNC_INTERVAL: {error}; using {RESYNC_SECONDS:.0f}s",)

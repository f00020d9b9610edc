"""
What the monitor is told: HAMi's flags and environment, and the few of its own.

Owns names, defaults and units. Reads only what it is given; the first thing that is wrong is never the only one named.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/cmd/vGPUmonitor/main.go
"""

from argparse import ArgumentTypeError
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hamicommon.errors import HamiError
from hamicommon.runtime.flags import FlagParser, bool_flag, duration, ignored_flag, parser

NAME = "hami-monitor"
DESCRIPTION = (
    "Exports what each container uses of the devices of its Node, and keeps neighbours out of each other's way."
)
RESYNC_SECONDS = 300.0
KLOG_FLAGS = {
    "--add_dir_header": True,
    "--alsologtostderr": True,
    "--log_backtrace_at": False,
    "--log_dir": False,
    "--log_file": False,
    "--log_file_max_size": False,
    "--logtostderr": True,
    "--one_output": True,
    "--skip_headers": True,
    "--skip_log_headers": True,
    "--stderrthreshold": False,
    "--vmodule": False,
}
"""Where klog writes, and whether the flag is a boolean. Source: https://pkg.go.dev/k8s.io/klog/v2#InitFlags"""


class ConfigError(HamiError):
    """The environment cannot be used; `problems` has one sentence for each thing that is wrong."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Config:
    """One run's settings."""

    node_name: str
    """The Node this runs on, from NODE_NAME."""
    hook_path: str
    """Folder that holds `containers/`, from HOOK_PATH; the device plugin's HOOK_PATH with `/vgpu` appended."""
    resync_seconds: float = RESYNC_SECONDS
    """How long the directory of an unknown Pod stays untouched before it goes, from HAMI_RESYNC_INTERVAL."""
    round_seconds: float = 5.0
    """Time between two rounds of scan and feedback."""
    metrics_bind_address: str = ":9394"
    legacy_metrics: bool = False
    """Also export the metric names HAMi used up to 2.8."""
    kubeconfig: str = ""
    verbosity: int = 0
    warnings: tuple[str, ...] = ()
    """Settings that are wrong but have a safe meaning, to be logged once."""


def flags(version: str) -> FlagParser:
    """Return the parser of the command line."""
    result = parser(NAME, version, DESCRIPTION)
    result.add_argument("--metrics-bind-address", default=":9394", help="host:port of /metrics and the probes")
    bool_flag(result, "--legacy-metrics", default=False, help="export the metric names of HAMi up to 2.8, too")
    result.add_argument(
        "--feedback-interval", type=_positive_duration, default=5.0, help="time between two rounds, such as 5s"
    )
    for name, is_bool in KLOG_FLAGS.items():
        ignored_flag(result, name, "logs go to stderr", is_bool=is_bool)
    return result


def config(arguments: Sequence[str], environment: Mapping[str, str], version: str) -> Config:
    """
    Return the settings in *arguments* and *environment*.

    Raises:
        ConfigError: NODE_NAME or HOOK_PATH is missing. HOOK_PATH may be empty, as HAMi allows.
        SystemExit: a flag is wrong or only the version was asked for; it has been printed.
    """
    given = flags(version).parse_args(arguments)
    problems = []
    if not environment.get("NODE_NAME"):
        problems.append("environment variable NODE_NAME is missing: set it to the Node's name (spec.nodeName)")
    if "HOOK_PATH" not in environment:
        problems.append("environment variable HOOK_PATH is missing: set it to the folder that holds containers/")
    if problems:
        raise ConfigError(tuple(problems))
    resync_seconds, warnings = _resync(environment.get("HAMI_RESYNC_INTERVAL", ""))
    return Config(
        node_name=environment["NODE_NAME"],
        hook_path=environment["HOOK_PATH"],
        resync_seconds=resync_seconds,
        round_seconds=given.feedback_interval,
        metrics_bind_address=given.metrics_bind_address,
        legacy_metrics=given.legacy_metrics,
        kubeconfig=given.kubeconfig,
        verbosity=given.verbosity,
        warnings=warnings,
    )


def _resync(text: str) -> tuple[float, tuple[str, ...]]:
    """Return the seconds of HAMI_RESYNC_INTERVAL, which falls back to its default when it is not a duration."""
    if not text:
        return RESYNC_SECONDS, ()
    try:
        return _positive_duration(text), ()
    except ArgumentTypeError as error:
        return RESYNC_SECONDS, (f"environment variable HAMI_RESYNC_INTERVAL: {error}; using {RESYNC_SECONDS:.0f}s",)


def _positive_duration(text: str) -> float:
    seconds = duration(text)
    if seconds <= 0:
        raise ArgumentTypeError(f"{text!r} is not longer than nothing")
    return seconds

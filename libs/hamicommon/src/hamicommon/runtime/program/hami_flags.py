"""
Every flag of HAMi's scheduler, which is two services here, and of its logger klog.

HAMi's chart passes one list of flags to one process, so both services accept the whole list. A flag that a service does
not have is accepted without effect. A flag that HAMi has removed is rejected, with what to write instead.
Neighbours: `flags` parses.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/cmd/scheduler/main.go, https://pkg.go.dev/k8s.io/klog/v2#InitFlags
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hamicommon.runtime.program.flags import FlagParser, ignored_flag
from hamicommon.runtime.program.settings import ServiceConfig, setting

DEBUG_VERBOSITY = 4

SCHEDULER_FLAGS: Mapping[str, bool] = {
    "--http_bind": False,
    "--cert_file": False,
    "--key_file": False,
    "--scheduler-name": False,
    "--node-scheduler-policy": False,
    "--gpu-scheduler-policy": False,
    "--metrics-bind-address": False,
    "--node-label-selector": False,
    "--kube-qps": False,
    "--kube-burst": False,
    "--kube-timeout": False,
    "--profiling": True,
    "--node-lock-timeout": False,
    "--node-lock-retry-timeout": False,
    "--force-overwrite-default-scheduler": True,
    "--leader-elect": True,
    "--leader-elect-resource-name": False,
    "--leader-elect-resource-namespace": False,
    "--legacy-metrics": True,
    "--device-config-file": False,
    "--debug": True,
    "--enable-ascend": True,
    "--enable-iluvatar": True,
}
"""Whether each flag is a boolean."""

VENDOR_FLAGS: Mapping[str, bool] = {
    "--sgpu-topology-aware": True,
    **dict.fromkeys(("--cambricon-mlu-name", "--cambricon-mlu-memory", "--cambricon-mlu-cores"), False),
    **dict.fromkeys(("--dcu-name", "--dcu-memory", "--dcu-cores"), False),
    **dict.fromkeys(("--mthreads-name", "--mthreads-memory", "--mthreads-cores"), False),
    **dict.fromkeys(("--metax-name", "--metax-vcount", "--metax-vcore", "--metax-vmemory"), False),
    **dict.fromkeys(("--kunlun-name", "--kunlun-vcount", "--kunlun-vmemory"), False),
    **dict.fromkeys(("--enflame-gcu-resource-name", "--enflame-drs-gcu-resource-name"), False),
    **dict.fromkeys(("--enflame-gcu-memory-resource-name", "--enflame-gcu-core-resource-name"), False),
    **dict.fromkeys(("--enflame-vgcu-resource-name", "--enflame-vgcu-legacy-resource-name"), False),
    "--enflame-vgcu-percentage-resource-name": False,
}
"""Names of resources. HAMi parses them and replaces them by those of the device config."""

REMOVED_FLAGS: Mapping[str, str] = {
    "--default-mem": "removed in HAMi 2.10; write nvidia.defaultMemory in the device config",
    "--default-cores": "removed in HAMi 2.10; write nvidia.defaultCores in the device config",
    "--default-gpu": "removed in HAMi 2.10; write nvidia.defaultGPUNum in the device config",
    **dict.fromkeys(
        ("--iluvatar-name", "--iluvatar-memory", "--iluvatar-cores"),
        "removed in HAMi 2.7.1; write the names under iluvatars in the device config",
    ),
}
"""Flags that HAMi has removed. They changed what Pods get, so they are not ignored silently."""

KLOG_FLAGS: Mapping[str, bool] = {
    "--add_dir_header": True,
    "--alsologtostderr": True,
    "--alsologtostderrthreshold": False,
    "--legacy_stderr_threshold_behavior": True,
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
"""klog's flags except `-v`, which every service has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HamiSchedulerConfig(ServiceConfig):
    """The settings of HAMi's scheduler that both services have."""

    http_bind: str = setting("--http_bind", "127.0.0.1:8080", "address of the service and its health paths")
    cert_file: str = setting("--cert_file", "", "PEM certificate chain; read again when it changes")
    key_file: str = setting("--key_file", "", "PEM private key of --cert_file")
    metrics_bind_address: str = setting(
        "--metrics-bind-address", ":9395", "address of /metrics and the health paths, without TLS; empty: --http_bind's"
    )
    device_config_file: str = setting("--device-config-file", "", "HAMi's device config, YAML (required)")
    has_ascend: bool = setting("--enable-ascend", False, "manage Ascend devices")
    has_iluvatar: bool = setting("--enable-iluvatar", False, "manage Iluvatar devices")
    is_debugged: bool = setting("--debug", False, "log debug lines, as -v=4")

    @property
    def log_verbosity(self) -> int:
        """How much is logged, by either flag."""
        return max(self.verbosity, DEBUG_VERBOSITY if self.is_debugged else 0)

    def problems(self) -> Iterator[str]:
        """Yield a sentence for each of these settings that is missing or contradicts another."""
        if not self.device_config_file:
            yield "--device-config-file: is required; it names the resources to manage"
        if bool(self.cert_file) != bool(self.key_file):
            yield "--cert_file and --key_file: give both for TLS, or neither for plain HTTP"


def accept_scheduler_flags(flags: FlagParser, reasons: Mapping[str, str]) -> None:
    """Accept every flag of HAMi's scheduler that *flags* does not have; *reasons* explains why each has no effect."""
    for name, is_bool in SCHEDULER_FLAGS.items():
        if not flags.has(name):
            ignored_flag(flags, name, reasons[name], is_bool=is_bool)
    for name, is_bool in VENDOR_FLAGS.items():
        ignored_flag(flags, name, "names come from --device-config-file, as in HAMi", is_bool=is_bool)
    flags.removed.update(REMOVED_FLAGS)
    accept_klog_flags(flags)


def accept_klog_flags(flags: FlagParser) -> None:
    """Accept klog's flags."""
    for name, is_bool in KLOG_FLAGS.items():
        ignored_flag(flags, name, "logs go to stderr, one JSON object a line", is_bool=is_bool)

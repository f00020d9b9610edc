"""
Every flag of HAMi's scheduler, which is two services here, and of the logger that most programs of HAMi share.

HAMi's chart passes one list to one process, so each service takes the whole list: a flag a service does not have itself
is accepted without effect, and one that HAMi has no more is refused with what to write instead. Owns the names; what
a flag does is its service's business.
Neighbours: `flags` parses.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/cmd/scheduler/main.go, https://pkg.go.dev/k8s.io/klog/v2#InitFlags
"""

from collections.abc import Mapping

from hamicommon.runtime.flags import FlagParser, ignored_flag

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
"""Names of resources, which HAMi parses and then overwrites by the device config's."""

REMOVED_FLAGS: Mapping[str, str] = {
    "--default-mem": "HAMi 2.10 has it no more; write nvidia.defaultMemory in the device config",
    "--default-cores": "HAMi 2.10 has it no more; write nvidia.defaultCores in the device config",
    "--default-gpu": "HAMi 2.10 has it no more; write nvidia.defaultGPUNum in the device config",
    **dict.fromkeys(
        ("--iluvatar-name", "--iluvatar-memory", "--iluvatar-cores"),
        "HAMi 2.7.1 has it no more; write the names under iluvatars in the device config",
    ),
}
"""What HAMi's scheduler had once. They changed what Pods get, so going on without them would be no service."""

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
"""Where and how klog writes; `-v` every service has."""


def accept_scheduler_flags(flags: FlagParser, reasons: Mapping[str, str]) -> None:
    """Accept every flag of HAMi's scheduler that *flags* lacks; *reasons* say of each why it has no effect."""
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

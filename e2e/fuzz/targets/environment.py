"""
Command lines, environments and the names of directories: settings, or ConfigError, or the exit of a wrong flag.

An input is lines. The first line chooses the service. Of the others, one that begins with `-` is a flag, one with `=` a
variable, and any other is the name of a directory or a container.
"""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from typing import Final

from fuzz.targets.forms import text_of
from hami_device_plugin.config.loader import files, load, named_folder
from hami_device_plugin.config.settings import parser
from hami_device_plugin.decide.allocate.allocation import directory_name
from hami_monitor import config as monitor
from hami_monitor.decide.containers import FILE_NAMES_MAX, choose_region_file, parse_directory_name
from hami_scheduler import config as scheduler
from hami_webhook import config as webhook
from hamicommon.config.device_config import ConfigError
from hamicommon.pod.variables import choices_of, is_control_disabled, priority_of

INPUTS: Final = 2_500
IS_JSON: Final = False
_DEVICE_CONFIG: Final = "nvidia:\n  resourceCountName: nvidia.com/gpu\n"


def check(data: bytes) -> None:
    """Read the settings of a service, and the names."""
    service, *lines = text_of(data).replace("\0", "").split("\n")
    flags = [line for line in lines if line.startswith("-")]
    environment = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith(("-", "=")))
    names = [line for line in lines if line and "=" not in line and not line.startswith("-")]
    # A flag that is wrong ends the process, with the reason on stderr.
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), suppress(ConfigError, SystemExit):
        _SERVICES[sum(service.encode("utf-8", "replace")) % len(_SERVICES)](flags, environment)
    _of_containers(environment)
    _names(names)


def seeds() -> Iterator[bytes]:
    """Return the command lines of the chart."""
    services = {
        name: chr(number).encode() for number, name in enumerate(("plugin", "monitor", "scheduler", "webhook"), 64)
    }
    yield services["plugin"] + (
        b"\n--config-file=/c\n--node-name=n\n--mig-strategy=none\n--device-split-count=4\n--health-probation=30s\n"
        b"HOOK_PATH=/usr/local\nNVIDIA_MIG_MONITOR_DEVICES=all\nDP_DISABLE_HEALTHCHECKS=xids,31\nHAMI_WIRE_VERSION=2.8\n"
        b"DEVICE_LIST_STRATEGY=envvar,cdi-cri\nIMEX_CHANNEL_IDS=0\nENABLE_TOPOLOGY_SCORE=true\n--mps-root=/run/mps"
    )
    yield services["monitor"] + (
        b"\n--v=4\n--watchdog-evict=\n--cgroup-root=/sys\nNODE_NAME=n\nHOOK_PATH=/usr/local/vgpu\nHAMI_RESYNC_INTERVAL=5m\n"
        b"6f0e-1_main\n.hidden\nlibvgpu.so\na.cache"
    )
    yield services["scheduler"] + (
        b"\n--http_bind=0.0.0.0:443\n--node-scheduler-policy=binpack\n--gpu-scheduler-policy=spread\n--leader-elect=true\n"
        b"--node-label-selector=a=b\n--node-lock-timeout=5m\nHAMI_NODELOCK_EXPIRE=1h30m\nHAMI_WIRE_VERSION=v2.10.0"
    )
    yield services["webhook"] + (
        b"\n--http_bind=:443\n--tls-secret=ns/name\n--tls-names=a.b.svc,10.0.0.1\n--webhook-configuration=hami\n"
        b"--scheduler-name=hami-scheduler\nCUDA_TASK_PRIORITY=1\nCUDA_DISABLE_CONTROL=true\nGPU_CORE_UTILIZATION_POLICY=force"
    )


def _plugin(flags: Sequence[str], environment: Mapping[str, str]) -> None:
    arguments = parser().parse_args(flags)
    named_folder(arguments, environment)
    texts = dict.fromkeys(files(arguments, environment), _DEVICE_CONFIG)
    load(arguments, environment, {**texts, "/config/config.json": ""})


_SERVICES: Final[tuple[Callable[[Sequence[str], Mapping[str, str]], object], ...]] = (
    _plugin,
    monitor.read_config,
    lambda flags, environment: scheduler.read_config(flags, environment, "host"),
    lambda flags, _environment: webhook.read_config(flags),
)


def _of_containers(environment: Mapping[str, str]) -> None:
    """Read the variables of a container."""
    env = [{"name": name, "value": value} for name, value in environment.items()]
    choices = choices_of(env)
    assert choices.items() <= environment.items()
    assert isinstance(priority_of(choices), int | None)
    assert isinstance(is_control_disabled(env), bool)


def _names(names: Sequence[str]) -> None:
    """Read the names of containers' directories and of the files there."""
    for name in names:
        key = parse_directory_name(name)
        if key is not None:
            assert directory_name(key.pod_uid, key.container) == name
    found = choose_region_file(names)
    assert not isinstance(found, str) or found in names
    assert len(names) < FILE_NAMES_MAX or not isinstance(found, str)

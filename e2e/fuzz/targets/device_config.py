"""
The device config, the Nodes' overrides, the named configs and mock devices: settings, or ConfigError.

What the config says of vendors can be used by every service. The first byte of an input chooses the file.
"""

from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import Final

from fuzz.targets.forms import DEVICE_CONFIGS, text_of
from hami_device_plugin.config.loader import load
from hami_device_plugin.config.named import read_named
from hami_device_plugin.config.settings import parser
from hami_device_plugin.decide.probe.mock import read_mock_devices
from hami_scheduler.rules.vendors import vendor_rules
from hami_webhook.decide.admission import Policy
from hamicommon.config.device_config import ConfigError, load_device_config
from hamicommon.config.node_overrides import load_node_overrides
from hamicommon.vendors import nvidia

INPUTS: Final = 3_000
IS_JSON: Final = False


def check(data: bytes) -> None:
    """Read one of the files."""
    if data:
        with suppress(ConfigError):
            _FILES[data[0] % len(_FILES)](text_of(data[1:]))


def seeds() -> Iterator[bytes]:
    """Return HAMi's files."""
    for path in DEVICE_CONFIGS:
        text = path.read_bytes()
        yield b"\x00" + text
        yield b"\x04" + text
        sections = text.split(b"\n\n")
        yield from (b"\x00" + section for section in sections)
    nvidia_section = (
        b"nvidia:\n  resourceCountName: nvidia.com/gpu\n  deviceSplitCount: 4\n  deviceMemoryScaling: 1.5\n"
    )
    yield b"\x00" + nvidia_section + b"  knownMigGeometries:\n  - models: [A30]\n    allowedGeometries:\n"
    yield b"\x01" + (
        b'{"nodeconfig":[{"name":"n","operatingmode":"mig","devicesplitcount":4,"devicememoryscaling":1.8,'
        b'"filterdevices":{"uuid":["GPU-a"],"index":[0]},"libcudaloglevel":"3","migstrategy":"none"}]}'
    )
    yield b"\x02" + b"flags:\n  migStrategy: mixed\nimex:\n  channelIDs: [0]\nnvidia:\n  devicesplitcount: 4\n"
    yield b"\x03" + b"a100:\n- count: 2\n  memory: 40960\n"
    yield (
        b"\x04"
        + nvidia_section
        + (
            b"flags:\n  migStrategy: none\n  plugin:\n    deviceListStrategy: [envvar]\n"
            b"sharing:\n  timeSlicing:\n    resources:\n    - name: nvidia.com/gpu\n      replicas: 4\n"
        )
    )


def _of_services(text: str) -> None:
    config = load_device_config(text)
    config.vendors()
    vendor_rules(config)
    Policy.of(config, "hami-scheduler")
    config.enabled(has_ascend=False, has_iluvatar=True)


def _overrides(text: str) -> None:
    overrides = load_node_overrides(text)
    for entry in overrides.entries[:3]:
        overrides.apply(nvidia.NvidiaConfig(), entry.name)


def _plugin(text: str) -> None:
    environ = {"NODE_NAME": "n", "HOOK_PATH": "/usr/local"}
    load(_arguments(), environ, {"/config.yaml": text, "/config.json": '{"nodeconfig":[]}'})


@cache
def _arguments() -> Namespace:
    arguments: Namespace = parser().parse_args(["--config-file=/config.yaml", "--node-config-file=/config.json"])
    return arguments


_FILES: Final[tuple[Callable[[str], object], ...]] = (
    _of_services,
    _overrides,
    lambda text: read_named(text, "n"),
    lambda text: read_mock_devices(text, "n"),
    _plugin,
)
"""A number is part of every input, so new ones come last."""

"""
A process that creates or destroys MIG instances on a fake driver, and is killed on the way.
"""

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pynvml
from device_plugin_mig import ModelNode, a_promise
from device_plugin_process import FAKE_DRIVER

from hami_device_plugin.adapters.mig_journal import JournalFile
from hami_device_plugin.adapters.nvml.mig import MigNvml
from hamicommon.runtime.host.nvml import Nvml

Step = tuple[str, int, bool]
"""A function, which of its calls, and whether the process is killed after it."""


def plugin(host: Path, what: str, step: Step | None) -> None:
    """Run one process of the plugin."""
    os.environ["FAKE_DRIVER_DIR"] = str(host / "hardware")
    asyncio.run(_plugin(host, what, step))


async def _plugin(host: Path, what: str, step: Step | None) -> None:
    nvml = Nvml()
    (host / "driver/usr/lib64").mkdir(parents=True, exist_ok=True)
    library = host / "driver/usr/lib64/libnvidia-ml.so.1"
    if not library.exists():
        library.symlink_to(FAKE_DRIVER / "libnvidia-ml.so.1")
    await nvml.open(str(host / "driver"))
    node = ModelNode()
    node.driver = MigNvml(nvml)  # type: ignore[assignment]
    node.store = JournalFile(host)  # type: ignore[assignment]
    saved = host / "pods.json"
    if saved.exists():
        node.items = json.loads(saved.read_text())
    node.restart()
    annotate = node.change_mig_allocations

    async def annotate_and_save(pod: Any, change: Callable[[str], str]) -> None:
        await annotate(pod, change)
        saved.write_text(json.dumps(node.items))

    node.change_mig_allocations = annotate_and_save  # type: ignore[method-assign]
    node.restart()
    if step is not None:
        _kill_at(node, step)
    await node.mig.prepare()
    if what == "neighbour":
        node.bind("neighbour", a_promise(1, 6))
        await node.start("neighbour")
    elif what == "start":
        if "p" not in node.items:
            node.bind("p", a_promise(2, 0))
            saved.write_text(json.dumps(node.items))
        await node.start("p")
    else:
        node.items.pop("p", None)
        saved.write_text(json.dumps(node.items))
        await node.mig.prepare()
    [gpu, _] = await node.driver.read_gpus()
    seen = {
        "instances": [found.mig_uuid for found in gpu.instances],
        "named": {name: node.named(name) for name in node.items},
    }
    (host / "seen.json").write_text(json.dumps(seen))


def _kill_at(node: ModelNode, step: Step) -> None:
    name, which, is_after = step
    calls = 0

    def killing(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == which and not is_after:
                _die()
            result = function(*arguments)
            if calls == which:
                _die()
            return result

        return wrapped

    if name == "journal":
        node.store.write = killing(node.store.write)  # type: ignore[method-assign]
    elif name == "annotate":
        annotate = node.change_mig_allocations

        async def annotate_and_die(pod: Any, change: Callable[[str], str]) -> None:
            await annotate(pod, change)
            _die()

        node.change_mig_allocations = annotate_and_die  # type: ignore[method-assign]
        node.restart()
    else:
        setattr(pynvml, name, killing(getattr(pynvml, name)))


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("killed")

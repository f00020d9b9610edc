"""
Let the monitor's watchdog look at a guest: `watchdog_of_guest.py HOOK_PATH DRIVER_ROOT PODS`.

PODS has the guest's Pods as a JSON list, because a guest has no API server. Prints Pod and kind of each finding that
lasts, as JSON. The driver, control groups, regions and processes are read as in `hami-monitor`.
"""

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from hami_monitor.adapters.kube import Events, Pods
from hami_monitor.adapters.nvml import Driver
from hami_monitor.adapters.processes import Processes
from hami_monitor.config import Config
from hami_monitor.decide.watchdog.confirmation import LASTING_SECONDS
from hami_monitor.serve.rounds import Rounds
from hami_monitor.serve.watchdog import Watchdog
from hamicommon.runtime.api.kube import Kube

KUBECONFIG = """{"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}], "current-context": "c",
"users": [{"name": "u", "user": {}}], "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}"""
"""Of an API server that is never asked."""


async def findings(hook_path: str, driver_root: str, pods: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return Pod and kind of what the watchdog finds in two readings."""
    node_name = pods[0]["spec"]["nodeName"]
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as kubeconfig:
        kubeconfig.write(KUBECONFIG)
        kubeconfig.flush()
        async with await Kube.connect(kubeconfig.name, "guest") as kube:
            known, driver, config = Pods(kube, node_name), Driver(driver_root), Config(node_name, hook_path)
            known.replace(pods)
            rounds = Rounds(config, known)
            watchdog = Watchdog(config, known, rounds, Processes(), Events(kube), driver.used_by_cgroup)
            await rounds.round()
            for pause_seconds in (0.0, LASTING_SECONDS):
                await asyncio.sleep(pause_seconds)
                await watchdog.look((await driver.devices()).read)
            return [(finding.place.pod, finding.kind.value) for finding in watchdog.status().findings]


if __name__ == "__main__":
    hook_path, driver_root, pods = sys.argv[1:]
    print(json.dumps(asyncio.run(findings(hook_path, driver_root, json.loads(Path(pods).read_text())))))

"""
Run the monitor for a Node of the embedded cluster, whose containers have no control groups.

It is the command `hami-monitor`, except that it tells the container of a process from the shim that started it, and
takes its pid namespace for the Node's, as the fake driver does. The variable KUBELET_ROOT names the folder of the
kubelet.
"""

import json
import os
import sys
from contextlib import suppress
from pathlib import Path

from hami_monitor.adapters.processes import Processes
from hami_monitor.config import NAME, read_config
from hami_monitor.main import run
from hamicommon.pod.control_groups import ContainerGroup
from hamicommon.runtime.program import logs, process
from minicluster.kubelet.podspec import container_id
from minicluster.pids import start_ticks

ROOT = Path(os.environ["KUBELET_ROOT"])


def container_of(pid: int) -> ContainerGroup | None:
    """Return the container of the shim that is an ancestor of *pid*."""
    shims = {}
    for path in ROOT.glob("pods/*/*/*.run.json"):
        with suppress(FileNotFoundError):
            started = json.loads(path.read_text())
            uid, name, attempt = *path.parts[-3:-1], path.name.partition(".")[0]
            shims[started["shim_pid"], started["shim_ticks"]] = ContainerGroup(
                uid, container_id(uid, name, int(attempt))
            )
    while pid > 1:
        found = shims.get((pid, start_ticks(pid)))
        if found is not None:
            return found
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return None


def main() -> int:
    """Run it and return its exit code."""
    config = read_config(sys.argv[1:], os.environ)
    logs.configure(config.verbosity)
    return process.run(lambda: run(config, Processes(container_of, has_nodes_pids=True)), NAME)


if __name__ == "__main__":
    sys.exit(main())

"""
Run the hook by which the driver limits a container, before the container's first instruction.

A container here has no control group of version 2. A folder stands for it, below the one that the arguments name;
the fake driver takes it for the container's group, because the container's variables say so.
Must never run another hook: containers have the machine's root, which it would change.
Neighbours: `cdi` finds the hook in a spec, `containers` starts what it has limited.
"""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from minicluster.kubelet.podspec import ContainerError
from minicluster.kubelet.runtime.groups import make_group, remove_group

NAME = "hami-limit-hook"
_PID = 1
"""That of the container's state. The process does not exist yet, and the hook reads only its group."""


def limit(command: Sequence[str], group: str, folder: Path, environment: dict[str, str]) -> str:
    """
    Run *command*, the hook, for a container in *group*, and name the group in the container's *environment*.

    *folder* takes what the kernel would show in /proc. Return the folder of the group.

    Raises: ContainerError with the sentence of a hook that fails.
    """
    root = Path(command[command.index("--cgroup") + 1])
    made = make_group(root, group)
    shown = folder / "proc" / str(_PID) / "cgroup"
    shown.parent.mkdir(parents=True, exist_ok=True)
    shown.write_text(f"0::{group}\n")
    variables = {"FAKE_DRIVER_CGROUP_ROOT": str(root), "FAKE_DRIVER_CGROUP": group}
    done = subprocess.run(
        [*command, "--proc", str(folder / "proc")],
        input=json.dumps({"pid": _PID}),
        env={"FAKE_DRIVER_DIR": environment.get("FAKE_DRIVER_DIR", ""), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        remove_group(made)
        raise ContainerError("RunContainerError", f"error running createRuntime hook: {done.stderr.strip()}")
    environment.update(variables)
    return str(made)

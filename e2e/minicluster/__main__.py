"""
Start one component of the embedded cluster: `python -m minicluster apiserver|kube-scheduler|kubelet`.

Owns only the choice. Each component declares its flags and runs until SIGTERM or SIGINT.
"""

import argparse
import asyncio
import contextlib
import importlib
import signal
import sys
from typing import Any

COMPONENTS = {
    "apiserver": ("minicluster.apiserver.main", "serve the Kubernetes API from memory"),
    "kube-scheduler": ("minicluster.kubescheduler.main", "schedule Pods as kube-scheduler does, with HTTP extenders"),
    "kubelet": ("minicluster.kubelet.main", "run one Node: device plugins, containers as processes"),
}
"""The module of each sub-command, which has `add_arguments(parser)` and `async run(args)`, and its help."""


def main() -> int:
    """Parse the command line, and run one component."""
    # Only the chosen component is imported.
    chosen = sys.argv[1] if len(sys.argv) > 1 else None
    parser = argparse.ArgumentParser(prog="python -m minicluster", description="A Kubernetes small enough to read.")
    commands = parser.add_subparsers(dest="component", required=True)
    for name, (module, description) in COMPONENTS.items():
        command = commands.add_parser(name, help=description, description=description)
        if name == chosen:
            component = importlib.import_module(module)
            component.add_arguments(command)
    arguments = parser.parse_args()
    return asyncio.run(_until_signal(component, arguments))


async def _until_signal(component: Any, arguments: argparse.Namespace) -> int:
    task = asyncio.ensure_future(component.run(arguments))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return 0


if __name__ == "__main__":
    sys.exit(main())

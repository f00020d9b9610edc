"""
A reader of the documentation: runs its commands against a real cluster.

Neighbours: `commands` finds them, `real` is the cluster.
"""

import asyncio
from pathlib import Path

from harness.cluster import ROOT
from harness.clusters.real import RealCluster
from harness.documents.commands import VARIABLES, Document

COMMAND_SECONDS = 900
"""More than any command takes. Pushing is the longest, if kube-scheduler has to be built."""


class Reader:
    """Runs the commands of one page against the cluster."""

    def __init__(self, cluster: RealCluster, page: str, checkout: Path, **variables: str) -> None:
        self._page = Document(ROOT / page)
        self._checkout = checkout
        self._environment = {"KUBECONFIG": str(cluster.kubeconfig), "PATH": cluster.search_path, **variables}
        self.unread = set(self._page.blocks) - {VARIABLES}
        """The names of the blocks that have not been run."""

    async def does(self, name: str, **variables: str) -> str:
        """Run the block *name*, and return its output."""
        environment = {**self._environment, **variables}
        output = await asyncio.to_thread(
            self._page.run, name, environment, folder=self._checkout, seconds=COMMAND_SECONDS
        )
        self.unread.discard(name)
        return output

    async def begins(self, name: str) -> str:
        """Start the block *name*, whose command goes on until Ctrl-C, and return the first line that it prints."""
        line = await asyncio.to_thread(self._page.begin, name, self._environment, folder=self._checkout)
        self.unread.discard(name)
        return line

"""
Find out how allocations find their Pod on this Node: by identity, or under the lock.

Neighbours: `decide.probe.mode` chooses, `service` looks again from time to time.
"""

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

import structlog

from hami_device_plugin.decide.probe.mode import AUTO, IDENTITY, LOCK, Mode, cdi_problem, choose, versions
from hami_device_plugin.serve.context import Context
from hamicommon.errors import HamiError

POLL_SECONDS = 0.5
PROBE_SECONDS = 30.0
"""How long a starting kubelet may take to answer before the session falls back to the lock."""

logger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class FoundMode:
    """The mode, and what it was chosen by."""

    mode: Mode
    versions: tuple[str, ...]
    """Of the runtime and the kubelet."""
    lacked: str | None
    """What identity allocation lacked; None if nothing, or if nobody asked."""
    is_cdi_named: bool
    """Whether answers under the lock name a CDI device too."""

    async def may_change(self, context: Context) -> bool:
        """Return whether the Node reports other versions, or has what identity allocation lacked."""
        if versions(context.view.node) not in ((), self.versions):
            return True
        return self.lacked is not None and await _identity_problem(context) is None


async def find_mode(context: Context) -> FoundMode:
    """Return the mode of the Node by its settings, its versions and what works there."""
    allocation, node = context.config.allocation, context.view.node
    problem, lacked = None, None
    if allocation in (AUTO, LOCK):
        node = await context.view.wait_node(lambda node: bool(versions(node)))
    if allocation == AUTO:
        problem = await _lasting_identity_problem(context)
    elif allocation == LOCK:
        lacked = cdi_problem(node) or await _identity_problem(context)
        logger.info("Variables of a Pod", hold="the grant's" if lacked is None else f"win: {lacked}")
    mode = choose(allocation, node, problem)
    logger.info("Allocations find their Pod", by=mode.name, because=mode.reason)
    for name in (IDENTITY, LOCK):
        context.metrics.mode.labels(name).set(mode.name == name)
    return FoundMode(mode, versions(node), problem, allocation == LOCK and lacked is None)


async def _lasting_identity_problem(context: Context) -> str | None:
    """
    Return why identity allocation cannot work here, as far as a probe shows; None if it can.

    A kubelet that is starting gets time to answer, so that the mode does not depend on which process started first.
    """
    deadline = time.monotonic() + PROBE_SECONDS
    while True:
        problem = await _identity_problem(context)
        if problem is None or time.monotonic() > deadline:
            return problem
        await asyncio.sleep(POLL_SECONDS)


async def _identity_problem(context: Context) -> str | None:
    """Return what identity allocation lacks at this moment; None if it has all."""
    try:
        await context.resources.listed()
        await asyncio.to_thread(context.checkpoint.entries)
        await asyncio.to_thread(Path(context.config.cdi_root).mkdir, parents=True, exist_ok=True)
    except (HamiError, OSError) as error:
        return str(error)
    return None

"""
What goes on while processes are killed: Pods end and start, settings change, and metrics are read.

The same seed draws the same Pods. Neighbour: `campaign`, which arms the points before each turn.
"""

import asyncio
import random
from contextlib import suppress
from functools import partial

import aiohttp

from hamicommon.model import Object
from harness.clusters.mixed import DEVICE_CONFIG, DRIVER, MIG, MPS, MixedCluster
from harness.load import running
from harness.manifests import HOLD, SLEEP, a_pod
from killpoints.points import SHARED
from minicluster.client import ApiError
from testbed.waiting import eventually

RUN_SECONDS = 240.0
"""How long a Pod may take to run, on a busy machine too: a kubelet retries a start after 10 s at least."""
SCRAPE_SECONDS = 0.5
COUNTS = {SHARED: (3, 4), MIG.name: (1, 1)}
"""The fewest and the most Pods of a turn on a Node, if not one or two."""
SPLITS = (10, 12)
"""The device config's counts of replicas, in turn."""
TLS_SECRET = "hami-webhook-tls"
SECRETS = "/api/v1/namespaces/kube-system/secrets"
CORES = "nvidia.com/gpucores"
TENANT = {"runAsUser": 60000, "allowPrivilegeEscalation": False}
"""The security context of a container that can never be root."""
WAITING_MIB = 10_000_000
"""More than any device has."""


class Load:
    """The Pods of one cluster, turn after turn."""

    def __init__(self, cluster: MixedCluster, seed: int) -> None:
        self._cluster = cluster
        self._draw = random.Random(f"{seed}/pods")
        self._turn = 0

    async def turn(self, *more: Object) -> list[str]:
        """
        End the Pods of the turn before, change the settings, and wait until new Pods and *more* run.

        Returns one sentence for each that does not run in time.
        """
        self._turn += 1
        pods = {manifest["metadata"]["name"]: manifest for manifest in (*self._pods(), *more)}
        waiting = a_pod(f"waiting-{self._turn}", command=SLEEP, gpu=1, gpumem=WAITING_MIB)
        scraping = asyncio.create_task(self._scrape())
        try:
            ending = asyncio.create_task(self._end_all(keep={*pods, f"waiting-{self._turn}"}))
            text = DEVICE_CONFIG.replace("deviceSplitCount: 10", f"deviceSplitCount: {SPLITS[self._turn % 2]}")
            self._cluster.configure(text)
            await eventually(self._forget_certificate, "the webhook's certificate is gone", RUN_SECONDS)
            waits = (
                eventually(partial(running, self._cluster, name, manifest=manifest), f"{name} runs", RUN_SECONDS)
                for name, manifest in pods.items()
            )
            created = eventually(partial(self._exists, waiting), "a Pod waits", RUN_SECONDS)
            found = await asyncio.gather(created, ending, *waits, return_exceptions=True)
        finally:
            scraping.cancel()
            await asyncio.gather(scraping, return_exceptions=True)
        return [f"load: {each}" for each in found if isinstance(each, BaseException)]

    def _pods(self) -> list[Object]:
        """Draw the Pods of this turn: one or more on each Node."""
        draw, made = self._draw, []
        for node in self._cluster.nodes:
            for number in range(draw.randint(*COUNTS.get(node.name, (1, 2)))):
                command = draw.choice((HOLD, SLEEP))
                on_node = {"nodeSelector": {"kubernetes.io/hostname": node.name}}
                name = f"{node.name}-{self._turn}-{number}"
                annotations, mib = {}, draw.choice((500, 1000, 2000))
                if node is MIG:
                    annotations, mib, command = {"nvidia.com/vgpu-mode": "mig"}, draw.choice((8000, 12000)), SLEEP
                if node is DRIVER:
                    annotations, command = {"hami.io/enforcement": "driver"}, SLEEP
                pod = a_pod(name, annotations=annotations, command=command, spec=on_node, gpu=1, gpumem=mib)
                if node is MPS:
                    [container] = pod["spec"]["containers"]
                    container["resources"]["limits"][CORES] = draw.choice((10, 20, 30))
                    container["securityContext"] = TENANT
                made.append(pod)
        draw.shuffle(made)
        return made

    async def _exists(self, manifest: Object) -> bool:
        with suppress(ApiError):
            await self._cluster.create(manifest)
        return bool(await self._cluster.pod(manifest["metadata"]["name"]))

    async def _end_all(self, keep: set[str]) -> None:
        """Delete the Pods of the turn before, some of them by force."""
        path = f"/api/v1/namespaces/{self._cluster.namespace}/pods"
        pods, _ = await self._cluster.api.list(path)
        for pod in pods:
            name = pod["metadata"]["name"]
            if name not in keep:
                await self._cluster.api.delete_if_exists(f"{path}/{name}", self._draw.choice((0, 1, 1)))

    async def _forget_certificate(self) -> bool:
        """Empty the Secret, so that the webhook fills it again."""
        place = f"{SECRETS}/{TLS_SECRET}"
        if not await self._cluster.api.exists(place):
            return True
        secret = await self._cluster.api.get(place)
        await self._cluster.api.request("PUT", place, {**secret, "data": {}})
        return True

    async def _scrape(self) -> None:
        """Read the metrics of all services again and again."""
        parts = [name for name in self._cluster.processes if name.startswith(("webhook", "plugin", "monitor"))]
        while True:
            for part in ("scheduler", *parts):
                with suppress(aiohttp.ClientError, LookupError, OSError, TimeoutError):
                    async with asyncio.timeout(5.0):
                        await self._cluster.metrics(part)
            await asyncio.sleep(SCRAPE_SECONDS)

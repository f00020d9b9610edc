"""
The real cluster, one Node of which gives its devices by ResourceClaims, and whose Pods ask by them.

Owns how a Pod that asks by HAMi's resources asks for the same by claims, and what the claims were given. So a test says
what a share is, and not how it is asked for. Neighbours: `dra` has the Node.
"""

import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, ClassVar

from hamicommon.dra.claims import Claim, decode_claim
from hamicommon.dra.grants import CLAIMS, RECORDS, ClaimGrant
from hamicommon.dra.names import CORES, DRA, DRIVER, MEMORY, base_request
from hamicommon.dra.slices import Pool, read_slices
from hamicommon.model import Object, Share
from hamicommon.pod.containers import containers_of
from hamicommon.runtime.host.claim_records import read_records
from harness.claims import API, delete_slices
from harness.cluster import Settings
from harness.clusters.dra import KIND_SECONDS, DraCluster
from harness.clusters.real import RealCluster
from harness.clusters.release import Value
from minicluster.client import ApiError
from testbed.driver.hardware import FakeNode

_RESOURCES = "nvidia.com/"
_WHOLE_PERCENT = "100"


class ClaimingCluster(DraCluster):
    """
    A real cluster whose last Node gives its devices by claims.

    `create` and `apply` make Pods that ask by claims of what their manifests ask for by resources.
    """

    gives_percentages = False
    values: ClassVar[Mapping[str, Value]] = {"dra.enabled": True}
    spec_names = "hami.io-vgpu-claim_*"

    @property
    def in_namespace(self) -> str:
        """The path of the API below which claims are."""
        return f"{API}/namespaces/{self.namespace}"

    # --- asking ----------------------------------------------------------------------------------------------------

    async def create(self, manifest: Object) -> Object:
        """Create one core object. A Pod asks by claims, by a template for each of its containers with devices."""
        if manifest["kind"] != "Pod":
            return await super().create(manifest)
        pod, templates = _by_claims(manifest)
        for name, spec in templates.items():
            await self._ensure("ResourceClaimTemplate", name, {"spec": spec})
        return await super().create(pod)

    async def create_claim(self, name: str, **limits: Any) -> Object:
        """Create a ResourceClaim for what a container with these limits asks for, as `a_container` has them."""
        named = {f"{_RESOURCES}{key}": value for key, value in limits.items()}
        item = {"kind": "ResourceClaim", "metadata": {"name": name}, "spec": _spec(named, {})}
        made: Object = await self.api.create(f"{self.in_namespace}/resourceclaims", item)
        return made

    async def _ensure(self, kind: str, name: str, spec: Object) -> None:
        try:
            manifest = {"kind": kind, "metadata": {"name": name}, "spec": spec}
            await self.api.create(f"{self.in_namespace}/{kind.lower()}s", manifest)
        except ApiError as error:
            if error.status != 409:
                raise

    # --- what was given --------------------------------------------------------------------------------------------

    async def granted(self, pod: Object) -> list[tuple[Share, ...]]:
        """Read the allocations of its claims."""
        made = {each["name"]: each for each in pod["status"].get("resourceClaimStatuses", [])}
        claims = {
            each["name"]: await self._claim(pod, {**made.get(each["name"], {}), **each}["resourceClaimName"])
            for each in pod["spec"].get("resourceClaims", [])
        }
        pools = await self._pools()
        return [
            tuple(
                result.share(pools[result.pool][result.device].device)
                for use in (container.get("resources") or {}).get("claims", [])
                for result in claims[use["name"]].results
                if use.get("request") in {None, base_request(result.request)}
            )
            for container, _ in containers_of(pod)
        ]

    async def _claim(self, pod: Object, name: str) -> Claim:
        return decode_claim(
            await self.api.get(f"{API}/namespaces/{pod['metadata']['namespace']}/resourceclaims/{name}")
        )

    async def offered(self, node: str) -> int:
        """Count the shares of the devices in the slice that take new ones."""
        devices = (await self._pools()).get(node, {}).values()
        return sum(each.device.count for each in devices if not each.taints)

    async def _pools(self) -> Mapping[str, Pool]:
        pools, problems = read_slices(await self.slices())
        assert not problems, problems
        return pools

    # --- the Node --------------------------------------------------------------------------------------------------

    def records(self) -> dict[str, ClaimGrant]:
        """Return what the plugin remembers of prepared claims, by UID."""
        found, problems = read_records(self.vgpu_folder(self.node) / CLAIMS / RECORDS)
        assert not problems, problems
        return found

    def prepared_mib(self) -> list[int]:
        """Read the plugin's records."""
        return sorted(share.memory_mib for grant in self.records().values() for share in grant.shares("gpu"))

    def leftovers(self) -> list[str]:
        """Return what is on the Node of claims: specs, records and folders of requests."""
        folders = (self.vgpu_folder(self.node) / CLAIMS).glob("[!.]*")
        return [*super().leftovers(), *self.records(), *(path.name for path in folders)]


@asynccontextmanager
async def claiming(cluster: RealCluster, settings: Settings | None = None) -> AsyncIterator[ClaimingCluster]:
    """During a block, with *settings*, let the last Node of *cluster* give its devices by claims."""
    found = ClaimingCluster.of(cluster)
    async with found.api:
        await found.label(DRA)
        try:
            await found.deploy(settings)
            yield found
        finally:
            await found.label(None)
            await found.node_ready(found.node, KIND_SECONDS)
            await delete_slices(found)


@asynccontextmanager
async def claiming_nodes(
    cluster: RealCluster, nodes: tuple[FakeNode, ...], settings: Settings
) -> AsyncIterator[ClaimingCluster]:
    """During a block, let only *nodes* take Pods, the last of them by claims; see `RealCluster.reshaped`."""
    its = replace(settings, values={**settings.values, **ClaimingCluster.values})
    async with cluster.reshaped(nodes, its) as other, claiming(other, its) as found:
        yield found
        await found.delete_all_pods()


def _by_claims(manifest: Object) -> tuple[Object, dict[str, Object]]:
    """Return a Pod that asks by claims, and the specs of its claims by the names of their templates."""
    pod: Object = json.loads(json.dumps(manifest))
    spec, templates = pod["spec"], {}
    annotations = pod["metadata"].setdefault("annotations", {})
    wishes = {key: annotations.pop(key) for key in list(annotations) if key.startswith(f"{_RESOURCES}use-")}
    for container in [*spec.get("initContainers", []), *spec["containers"]]:
        resources = container.get("resources") or {}
        asked = {key: value for key, value in (resources.get("limits") or {}).items() if key.startswith(_RESOURCES)}
        if asked:
            claim = _spec(asked, wishes)
            template = f"share-{hashlib.sha256(json.dumps(claim, sort_keys=True).encode()).hexdigest()[:8]}"
            templates[template] = claim
            container["resources"] = {"claims": [{"name": container["name"]}]}
            entry = {"name": container["name"], "resourceClaimTemplateName": template}
            spec["resourceClaims"] = [*spec.get("resourceClaims", []), entry]
    return pod, templates


def _spec(asked: Mapping[str, Any], wishes: Mapping[str, str]) -> Object:
    """Return the spec of a claim for what resources ask for, of devices that the annotations *wishes* allow."""
    amounts = {}
    left = dict(asked)
    count = int(left.pop(f"{_RESOURCES}gpu", 1))
    memory, percent = left.pop(f"{_RESOURCES}gpumem", None), str(left.pop(f"{_RESOURCES}gpumem-percentage", ""))
    cores = left.pop(f"{_RESOURCES}gpucores", None)
    assert not left, f"a claim cannot ask for {sorted(left)}"
    assert percent in {"", _WHOLE_PERCENT}, "a claim cannot ask for a part of a device's memory in percent"
    if memory is not None:
        amounts[MEMORY] = f"{memory}Mi"
    # Without both amounts a Pod has the whole device. With memory alone it has no limit on compute, which is 0.
    if cores is not None or memory is not None:
        amounts[CORES] = str(cores or 0)
    request = {
        "deviceClassName": DRIVER,
        "count": count,
        "selectors": [{"cel": {"expression": each}} for each in _conditions(wishes)],
        "capacity": {"requests": amounts},
    }
    return {"devices": {"requests": [{"name": "gpu", "exactly": request}]}}


def _conditions(wishes: Mapping[str, str]) -> list[str]:
    """Return expressions that are true for the devices that the annotations allow."""
    attributes = f'device.attributes["{DRIVER}"]'
    known = {
        f"{_RESOURCES}use-gputype": f"{attributes}.productName.contains({{}})",
        f"{_RESOURCES}use-gpuuuid": f"{attributes}.uuid == {{}}",
    }
    return [known[key].format(json.dumps(value)) for key, value in wishes.items()]

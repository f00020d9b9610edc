"""
Binding, eviction and log of a Pod.

Owns the one atomic write of a Binding: the Node, the Binding's annotations and PodScheduled=True together, or nothing.
Webhooks are not called. Neighbours: `verbs` deletes, the kubelet's HTTP port serves logs.
Source: k8s.io/kubernetes/pkg/registry/core/pod/storage/{storage,eviction}.go; measured on kube-apiserver 1.34.4.
"""

import aiohttp
from aiohttp import web

from hamicommon.model import Object
from minicluster.apiserver.api import errors
from minicluster.apiserver.api.resources import NODES, PODS
from minicluster.apiserver.serve.requests import Target
from minicluster.apiserver.serve.verbs import Verbs, stamp
from minicluster.apiserver.store.storage import Entry, Storage

ALREADY_ASSIGNED = 'pod {0} is already assigned to node "{1}"'
BEING_DELETED = "pod {0} is being deleted, cannot be assigned to a host"
IS_GATED = "pod {0} has non-empty .spec.schedulingGates"


class Subresources:
    """The subresources of Pods."""

    def __init__(self, storage: Storage, verbs: Verbs) -> None:
        self._storage = storage
        self._verbs = verbs
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close all connections to kubelets."""
        if self._session is not None:
            await self._session.close()

    def bind(self, target: Target, binding: Object, is_dry_run: bool) -> Object:
        """
        Bind the Pod to the Node of *binding*, and merge the Binding's annotations. Its labels are not merged.

        Raises: StatusError 409 for a Pod that is bound, gated or being deleted, or has another uid.
        """
        metadata = binding.get("metadata") or {}
        if metadata.get("name") not in {None, "", target.name}:
            raise errors.bad_request("name in URL does not match name in Binding object")
        node = (binding.get("target") or {}).get("name") or ""
        _check_binding(binding, node)
        found = self._verbs.read(target).load()
        self._check_bindable(target, found, metadata)
        found["spec"]["nodeName"] = node
        if metadata.get("annotations"):
            found["metadata"]["annotations"] = (found["metadata"].get("annotations") or {}) | metadata["annotations"]
        _set_scheduled(found.setdefault("status", {}))
        if not is_dry_run:
            self._storage.put(PODS, target.key, found)
        return errors.success(code=201)

    def _check_bindable(self, target: Target, found: Object, metadata: Object) -> None:
        for field, mismatch in (("uid", errors.uid_mismatch), ("resourceVersion", errors.version_mismatch)):
            wanted = metadata.get(field)
            if wanted and wanted != found["metadata"][field]:
                raise errors.conflict("pods", target.name, mismatch(wanted, found["metadata"][field]))
        why = None
        if found["metadata"].get("deletionTimestamp"):
            why = BEING_DELETED.format(target.name)
        elif found["spec"].get("nodeName"):
            why = ALREADY_ASSIGNED.format(target.name, found["spec"]["nodeName"])
        elif found["spec"].get("schedulingGates"):
            why = IS_GATED.format(target.name)
        if why:
            raise errors.conflict("pods/binding", target.name, why)

    async def evict(self, target: Target, eviction: Object, is_dry_run: bool) -> Object:
        """
        Delete the Pod with the options of *eviction*. There are no disruption budgets.

        Raises: StatusError as a deletion.
        """
        await self._verbs.delete(target, eviction.get("deleteOptions") or {}, is_dry_run)
        return errors.success(code=201)

    async def log(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        """
        Forward a container's log from its kubelet.

        The log of an unbound Pod is empty. Raises: StatusError 400 for an unknown or unnamed container, 500 if the
        kubelet does not answer.
        """
        pod = self._verbs.read(target)
        url = self._log_url(pod, request.query.get("container", ""))
        if url is None:
            return web.Response()
        query = {key: value for key, value in request.query.items() if key != "container"}
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None, connect=5))
        try:
            async with self._session.get(url, params=query) as answer:
                if answer.status >= 400:
                    text = (await answer.text()).strip()
                    raise errors.StatusError(answer.status, "BadRequest" if answer.status < 500 else "", text)
                response = web.StreamResponse(headers={"Content-Type": "text/plain"})
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
                return response
        except aiohttp.ClientError as error:
            raise errors.internal(f'Get "{url}": {error}') from error

    def _log_url(self, entry: Entry, container: str) -> str | None:
        pod = entry.load()
        name, namespace, spec = pod["metadata"]["name"], pod["metadata"]["namespace"], pod["spec"]
        names = [found["name"] for found in (spec.get("initContainers") or []) + spec["containers"]]
        if not container:
            if len(spec["containers"]) > 1:
                raise errors.bad_request(
                    f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]"
                )
            container = spec["containers"][0]["name"]
        if container not in names:
            raise errors.bad_request(f"container {container} is not valid for pod {name}")
        if not spec.get("nodeName"):
            return None
        node = self._storage.get(NODES, spec["nodeName"])
        if node is None:
            raise errors.not_found("nodes", spec["nodeName"])
        status = node.load().get("status") or {}
        port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port")
        if not port:
            raise errors.internal(f'node "{spec["nodeName"]}" has no status.daemonEndpoints.kubeletEndpoint.Port')
        # All Nodes are processes on this machine, whatever their addresses.
        return f"http://127.0.0.1:{port}/containerLogs/{namespace}/{name}/{container}"


def _check_binding(binding: Object, node: str) -> None:
    kind = (binding.get("target") or {}).get("kind") or "Node"
    if kind != "Node":
        raise errors.plain(f'target.kind: Unsupported value: "{kind}": supported values: "Node", "<empty>"')
    if not node:
        raise errors.plain("target.name: Required value")


def _set_scheduled(status: Object) -> None:
    """Set PodScheduled=True. If it was False, the condition changes."""
    condition = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": stamp()}
    conditions = status.get("conditions") or []
    status["conditions"] = [known for known in conditions if known.get("type") != "PodScheduled"] + [condition]

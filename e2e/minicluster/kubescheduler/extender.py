"""
Call an extender: filter, prioritize, bind.

Owns the bodies of the extender protocol, and the meaning of its answers. Must never choose a Node.
Source: k8s.io/kubernetes/pkg/scheduler/extender.go, k8s.io/kube-scheduler/extender/v1/types.go (no JSON tags:
CamelCase keys).
"""

import ssl
from dataclasses import dataclass

import orjson

from hamicommon.model import Object
from minicluster.kubescheduler.config import ExtenderConfig
from minicluster.kubescheduler.http import Poster, PostError
from minicluster.podrequests import containers

MAX_NODE_SCORE = 100
MAX_EXTENDER_PRIORITY = 10

BAD_STATUS = "failed {verb} with extender at URL {url}, code {code}"
FOREIGN_NODE = 'extender "{url}" claims a filtered node "{node}" which is not found in the input node list'


class ExtenderError(Exception):
    """The call failed, or the answer has Error. The attempt fails then, which is not a rejection."""


@dataclass(frozen=True, slots=True)
class Filtered:
    """The result of a filter call."""

    names: list[str]
    failed: dict[str, str]
    """By Node, the reason of a rejection that preemption could resolve."""
    failed_for_good: dict[str, str]


class Extender:
    """One configured extender."""

    def __init__(self, config: ExtenderConfig) -> None:
        self.config = config
        context = _context(config) if config.enables_https else None
        self._poster = Poster(config.url_prefix, context, config.server_name, config.timeout_seconds)

    def close(self) -> None:
        """Close idle connections."""
        self._poster.close()

    def is_interested(self, pod: Object) -> bool:
        """Return whether *pod* requests a resource that this extender manages."""
        managed = self.config.managed
        if not managed:
            return True
        for _, container in containers(pod["spec"]):
            resources = container.get("resources") or {}
            asked = {*(resources.get("requests") or ()), *(resources.get("limits") or ())}
            if not managed.keys().isdisjoint(asked):
                return True
        return False

    async def filter(self, pod: Object, nodes: list[Object]) -> Filtered:
        """
        Filter *nodes* for *pod*.

        Raises: ExtenderError.
        """
        names = [node["metadata"]["name"] for node in nodes]
        answer = await self._send(self.config.filter_verb, self._arguments(pod, nodes, names))
        if answer.get("error"):
            raise ExtenderError(str(answer["error"]))
        if self.config.is_node_cache_capable and answer.get("nodenames") is not None:
            found = [str(name) for name in answer["nodenames"]]
        else:
            listed = _lowered(answer.get("nodes") or {})
            found = [node["metadata"]["name"] for node in listed.get("items") or ()]
        known = set(names)
        for name in found:
            if name not in known:
                raise ExtenderError(FOREIGN_NODE.format(url=self.config.url_prefix, node=name))
        return Filtered(found, answer.get("failednodes") or {}, answer.get("failedandunresolvablenodes") or {})

    async def prioritize(self, pod: Object, nodes: list[Object]) -> dict[str, float]:
        """
        Return the extender's addition to the score of each Node, on the scale of the scheduler's scores.

        Raises: ExtenderError.
        """
        names = [node["metadata"]["name"] for node in nodes]
        content = self._arguments(pod, nodes, names)
        answer = orjson.loads(await self._post(self.config.prioritize_verb, content) or b"null") or []
        scale = self.config.weight * MAX_NODE_SCORE / MAX_EXTENDER_PRIORITY
        scores = [_lowered(score) for score in answer]
        return {str(score["host"]): float(score["score"]) * scale for score in scores}

    async def bind(self, pod: Object, node: str) -> None:
        """
        Let the extender bind *pod* to *node*.

        Raises: ExtenderError.
        """
        metadata = pod["metadata"]
        answer = await self._send(
            self.config.bind_verb,
            {
                "PodName": metadata["name"],
                "PodNamespace": metadata["namespace"],
                "PodUID": metadata["uid"],
                "Node": node,
            },
        )
        if answer.get("error"):
            raise ExtenderError(str(answer["error"]))

    def _arguments(self, pod: Object, nodes: list[Object], names: list[str]) -> Object:
        # Typed objects of Go's informers have no kind and apiVersion, so none are sent.
        bare = {key: value for key, value in pod.items() if key not in {"kind", "apiVersion"}}
        if self.config.is_node_cache_capable:
            return {"Pod": bare, "Nodes": None, "NodeNames": names}
        items = [{key: value for key, value in node.items() if key not in {"kind", "apiVersion"}} for node in nodes]
        return {"Pod": bare, "Nodes": {"metadata": {}, "items": items}, "NodeNames": None}

    async def _send(self, verb: str, arguments: Object) -> Object:
        try:
            answer = orjson.loads(await self._post(verb, arguments) or b"{}")
        except orjson.JSONDecodeError as error:
            raise ExtenderError(str(error)) from error
        if not isinstance(answer, dict):
            raise ExtenderError(f"json: cannot unmarshal {type(answer).__name__} into the answer to {verb}")
        return _lowered(answer)

    async def _post(self, verb: str, arguments: Object) -> bytes:
        try:
            status, body = await self._poster.post(verb, orjson.dumps(arguments))
        except PostError as error:
            raise ExtenderError(str(error)) from error
        if status != 200:
            url = f"{self.config.url_prefix}/{verb}"
            raise ExtenderError(BAD_STATUS.format(verb=verb, url=url, code=status))
        return body


def _lowered(found: Object) -> Object:
    """Return *found* with lower-case keys, because Go matches keys in any case."""
    return {key.lower(): value for key, value in found.items()}


def _context(config: ExtenderConfig) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=config.ca_file or None)
    if config.is_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if config.cert_file:
        context.load_cert_chain(config.cert_file, config.key_file)
    return context

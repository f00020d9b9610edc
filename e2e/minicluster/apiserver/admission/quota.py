"""
Enforce the ResourceQuotas of a namespace on its Pods.

Owns the usage of a Pod, the rejection, and `status.used`, which rises with an admitted Pod and is counted again soon
after one ends. Scopes are ignored: a quota with scopes counts every Pod.
Source: k8s.io/kubernetes/pkg/quota/v1/evaluator/core/pods.go,
k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go.
"""

import asyncio
from collections.abc import Iterable
from fractions import Fraction

from hamicommon.model import Object
from minicluster import quantity
from minicluster.apiserver.api import errors
from minicluster.apiserver.api.resources import PODS, RESOURCE_QUOTAS
from minicluster.apiserver.store.storage import Change, Storage
from minicluster.podrequests import Amounts, add, containers, is_extended, pod_amounts

RECOUNT_DELAY_SECONDS = 0.05
"""The delay after a Pod's end before its quota is free again."""

EXCEEDED = "exceeded quota: {quota}, requested: {requested}, used: {used}, limited: {limited}"
UNDECLARED = "failed quota: {quota}: must specify {missing}"

COMPUTE = ("cpu", "memory", "ephemeral-storage")


def pod_usage(pod: Object) -> Amounts:
    """Return the usage of *pod*, by the names in quotas. An ended Pod uses nothing."""
    if (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}:
        return {}
    usage: Amounts = {"pods": Fraction(1), "count/pods": Fraction(1)}
    for section in ("requests", "limits"):
        for name, amount in pod_amounts(pod["spec"], section).items():
            if name in COMPUTE:
                usage[f"{section}.{name}"] = amount
                if section == "requests":
                    usage[name] = amount
            elif section == "requests" and is_extended(name):
                usage[f"requests.{name}"] = amount
    return usage


class Quotas:
    """The quotas of all namespaces, kept up to date with the Pods in *storage*."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._due: set[str] = set()
        storage.collections[PODS].listeners.add(self._pod_changed)
        storage.collections[RESOURCE_QUOTAS].listeners.add(self._quota_changed)

    def admit(self, pod: Object, is_dry_run: bool) -> None:
        """
        Count *pod*, which is about to be created, in every quota of its namespace.

        Raises: StatusError 403 if a quota would be exceeded, or limits a resource that *pod* does not declare. Nothing
        is counted then.
        """
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        wanted = pod_usage(pod)
        raised = []
        for key in self._keys(namespace):
            found = self._storage.collections[RESOURCE_QUOTAS].entries[key].load()
            hard = _parsed((found.get("spec") or {}).get("hard"))
            used = _parsed((found.get("status") or {}).get("used"))
            refusal = _refusal(found["metadata"]["name"], pod, wanted, hard, used)
            if refusal:
                raise errors.forbidden("pods", name, refusal)
            for resource in hard.keys() & wanted.keys():
                used[resource] = used.get(resource, Fraction(0)) + wanted[resource]
            raised.append((key, found, used))
        for key, found, used in raised if not is_dry_run else ():
            self._write(key, found, used)

    def _keys(self, namespace: str) -> list[str]:
        return self._storage.collections[RESOURCE_QUOTAS].range(namespace)

    def _write(self, key: str, found: Object, used: Amounts) -> None:
        hard = (found.get("spec") or {}).get("hard") or {}
        status = {"hard": hard, "used": {name: quantity.show(used.get(name, Fraction(0))) for name in hard}}
        if found.get("status") != status:
            found["status"] = status
            self._storage.put(RESOURCE_QUOTAS, key, found)

    def _pod_changed(self, change: Change) -> None:
        ended = change.after is None or change.after.fields["status.phase"] in {"Succeeded", "Failed"}
        if ended and change.before is not None:
            self._recount_soon(change.before.fields["metadata.namespace"])

    def _quota_changed(self, change: Change) -> None:
        if change.after is not None:
            self._recount_soon(change.after.fields["metadata.namespace"])

    def _recount_soon(self, namespace: str) -> None:
        if namespace in self._due or not self._keys(namespace):
            return
        self._due.add(namespace)
        asyncio.get_running_loop().call_later(RECOUNT_DELAY_SECONDS, self._recount, namespace)

    def _recount(self, namespace: str) -> None:
        self._due.discard(namespace)
        pods = self._storage.collections[PODS]
        used = _sum(pod_usage(pods.entries[key].load()) for key in pods.range(namespace))
        for key in list(self._keys(namespace)):
            self._write(key, self._storage.collections[RESOURCE_QUOTAS].entries[key].load(), used)


def _refusal(quota: str, pod: Object, wanted: Amounts, hard: Amounts, used: Amounts) -> str | None:
    missing = _missing(pod, hard)
    if missing:
        return UNDECLARED.format(quota=quota, missing="; ".join(missing))
    exceeded = sorted(
        name for name, limit in hard.items() if name in wanted and used.get(name, Fraction(0)) + wanted[name] > limit
    )
    if not exceeded:
        return None
    lists = [
        ",".join(f"{name}={quantity.show(found.get(name, Fraction(0)))}" for name in exceeded)
        for found in (wanted, used, hard)
    ]
    return EXCEEDED.format(quota=quota, requested=lists[0], used=lists[1], limited=lists[2])


def _missing(pod: Object, hard: Amounts) -> list[str]:
    """Return the limited compute resources that containers do not declare, `cpu for: a,b`."""
    missing = []
    for name in sorted(hard):
        section, _, resource = name.rpartition(".")
        if resource in COMPUTE and section in {"", "requests", "limits"}:
            silent = [
                container["name"]
                for _, container in containers(pod["spec"])
                if resource not in ((container.get("resources") or {}).get(section or "requests") or {})
            ]
            if silent:
                missing.append(f"{name} for: {','.join(silent)}")
    return missing


def _parsed(amounts: Object | None) -> Amounts:
    return {name: quantity.parse(amount) for name, amount in (amounts or {}).items()}


def _sum(usages: Iterable[Amounts]) -> Amounts:
    total: Amounts = {}
    for usage in usages:
        add(total, usage)
    return total

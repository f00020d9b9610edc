"""
What HAMi 2.10.0 answers, and the rules by which our answer differs.

A rule is a function of what a case contains and says why; it knows no case by its name. What no rule explains must be
equal.
"""

import asyncio
import copy
import json
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from hami_scheduler.bind.locking import NodeLocks
from hami_scheduler.serve.context import Clock, Context, Settings
from hami_scheduler.serve.filter import FilterAnswer, filter_pod
from hami_scheduler.state.cluster import Cluster
from hami_scheduler.values.inventory import NodeInventory
from hami_scheduler.values.policies import Policies
from hami_scheduler.values.reasons import Misfit, Reason
from hami_scheduler.values.request import PodRequest, read_request
from hamicommon.model import PodShares
from hamicommon.pod.amounts import effective_counts
from hamicommon.pod.reading import Container
from hamicommon.wire import keys
from hamicommon.wire.pod_devices import decode_pod_devices

from .builders import NOW, VECTORS, vendors

Case = dict[str, Any]
Sums = dict[str, list[int]]
"""By device: replicas, MiB, percent."""


def cases(name: str) -> list[Case]:
    """Return the cases of one file."""
    found: list[Case] = json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def by_name(found: list[Case]) -> list[Any]:
    """Return *found* as parameters that carry their names."""
    return [pytest.param(case, id=str(case["case"])) for case in found]


def as_hami_counts(pod: dict[str, Any]) -> dict[str, Any] | None:
    """
    Return *pod* so that we count what HAMi counts when it first sees it, None if that is nothing.

    HAMi ignores Pods that were terminating when it started, counts finished init containers until the next event, and
    counts the allocation of Pods that are not bound.
    """
    if pod["metadata"].get("deletionTimestamp"):
        return None
    pod = copy.deepcopy(pod)
    pod["status"].pop("initContainerStatuses", None)
    chosen = pod["metadata"]["annotations"].get("hami.io/vgpu-node")
    if chosen:
        pod["spec"].setdefault("nodeName", chosen)
    return pod


def unanswered(node: dict[str, Any], config: str) -> list[str]:
    """Return the register annotations of *node* that HAMi does not take up: it asked, and waits for an answer."""
    annotations = node["metadata"].get("annotations") or {}
    return [
        rules.vendor.register_key
        for rules in vendors(config)
        if not rules.may_find_owners and "Requesting" in annotations.get(rules.vendor.handshake_key, "")
    ]


def as_hami_sees(node: dict[str, Any], config: str) -> dict[str, Any]:
    """Return *node* without what HAMi does not take up when it starts."""
    node = copy.deepcopy(node)
    for key in unanswered(node, config):
        del node["metadata"]["annotations"][key]
    return node


def with_plenty(node: dict[str, Any], config: str) -> dict[str, Any]:
    """
    Return *node* with a kubelet that never runs out: HAMi does not look at what a kubelet has left.

    A kubelet that offers nothing of a plugin that was asked for a sign of life stays as it is: HAMi looks there.
    """
    annotations, allocatable = node["metadata"].get("annotations") or {}, node["status"]["allocatable"]
    amounts = {
        name: "1000000"
        for rules in vendors(config)
        for name in rules.counted
        if allocatable.get(name, "0") != "0" or "Requesting" not in annotations.get(rules.vendor.handshake_key, "")
    }
    return {**node, "status": {**node["status"], "allocatable": {**allocatable, **amounts}}}


def cluster_of(case: Case, *, counts_kubelets: bool = False) -> Cluster:
    """Return the cluster of *case*, counting as HAMi counts; with *counts_kubelets* beside what kubelets have left."""
    config = case["flags"]["config"]
    cluster = Cluster(vendors(config), lambda _kind, _name, _problem: None)
    nodes = [as_hami_sees(node, config) for node in case["nodes"]]
    cluster.replace_nodes(nodes if counts_kubelets else [with_plenty(node, config) for node in nodes])
    cluster.quotas.replace(case.get("quotas", []))
    cluster.replace_pods([pod for pod in map(as_hami_counts, case.get("pods", [])) if pod], 0.0)
    return cluster


def request_of(case: Case, cluster: Cluster) -> PodRequest:
    """Return what the asking Pod of *case* asks."""
    return read_request(case["pod"], cluster.vendors, policies_of(case))


def policies_of(case: Case) -> Policies:
    """Return the flags of *case*."""
    return Policies(case["flags"]["node_scheduler_policy"], case["flags"]["gpu_scheduler_policy"])


class Told:
    """An API client that only remembers Events: a filter must not need to write."""

    def __init__(self) -> None:
        """Start with no Event."""
        self.warnings: list[tuple[str, str]] = []
        """Reason and message of each Warning."""

    def queue_event(self, _pod: object, reason: str, message: str, *, is_warning: bool) -> None:
        """Remember a Warning."""
        if is_warning:
            self.warnings.append((reason, message))


def a_context(case: Case, cluster: Cluster) -> tuple[Context, Told]:
    """Return a context of *cluster* under the flags of *case*, and what remembers its Events."""
    told = Told()
    api: Any = told
    clock = Clock(lambda: NOW, lambda: 0.0)
    locks = NodeLocks(api, clock.now, timedelta(minutes=5))
    return Context(cluster, api, locks, clock, Settings(policies_of(case)), lambda: None), told


def answer_of(case: Case) -> tuple[FilterAnswer, Told]:
    """Return the answer to the call of *case*, and the Events."""
    context, told = a_context(case, cluster_of(case))
    if case["form"] == "nodes":
        return asyncio.run(filter_pod(context, case["pod"], None, case["nodes"])), told
    return asyncio.run(filter_pod(context, case["pod"], case["node_names"], None)), told


# The rules


def other_chips(request: PodRequest, inventory: NodeInventory) -> set[str]:
    """
    Return the devices that HAMi takes for the chip that *request* asks: those whose type contains the chip's name.

    HAMi gives an `Ascend910B4` a device of an `Ascend910B4-1`, or says that it fits and gives none.
    """
    return {
        device.id
        for device in inventory.devices
        for key in request.constraints
        if device.vendor != key and key.lower() in device.type.lower()
    }


def kubelet_refuses(case: Case, name: str, vendor_keys: Iterable[str]) -> bool:
    """
    Return whether the kubelet of the Node *name* would not give the Pod of *case* what it asks of *vendor_keys*.

    It does not know a resource, or the Pods there leave too few of it for the Pod's whole life. HAMi sends the Pod
    there all the same, and it runs without devices or fails (issue #1430).
    """
    vendor_rules = [rules for rules in vendors(case["flags"]["config"]) if rules.key in vendor_keys]
    node = next((node for node in case["nodes"] if node["metadata"]["name"] == name), None)
    if node is None:
        return False
    there = [pod for pod in map(as_hami_counts, case.get("pods", [])) if pod and pod["spec"].get("nodeName") == name]
    there = [pod for pod in there if pod["status"].get("phase") not in {"Succeeded", "Failed"}]
    for rules in vendor_rules:
        if int(node["status"]["allocatable"].get(rules.kubelet_resources[0], 0)) <= 0:
            return True
        for resource in rules.counted:
            asked = effective_counts(case["pod"], {resource}).get(resource, 0)
            if resource not in node["status"]["allocatable"]:
                if asked and resource in rules.kubelet_resources:
                    return True
                continue
            held = sum(effective_counts(pod, {resource}).get(resource, 0) for pod in there)
            if asked > int(node["status"]["allocatable"][resource]) - held and asked:
                return True
    return False


def counts_containers_apart(pod: dict[str, Any], quotas: Sequence[dict[str, Any]]) -> bool:
    """
    Return whether HAMi counts app containers of *pod* against a quota as if each ran alone (issue #3052).

    It does so for as many of them as there are init containers.
    """
    spec, namespace = pod["spec"], pod["metadata"].get("namespace")
    is_limited = any(quota["metadata"]["namespace"] == namespace for quota in quotas)
    return is_limited and bool(spec.get("initContainers")) and len(spec["containers"]) > 1


def is_ours_by_quota(found: object, pod: dict[str, Any], quotas: Sequence[dict[str, Any]]) -> bool:
    """Return whether we refuse by the quota what HAMi's sum lets pass."""
    return isinstance(found, Misfit) and Reason.QUOTA in found.reasons and counts_containers_apart(pod, quotas)


def asking(containers: Sequence[Container], vendor: str) -> list[int]:
    """Return the positions of the containers that ask *vendor* for devices."""
    return [place for place, each in enumerate(containers) if any(asked.vendor == vendor for asked in each.requests)]


def lost_entries(text: str, containers: Sequence[Container]) -> bool:
    """Return whether HAMi's *text* lost the entries of containers without devices (issue #2899)."""
    return text.count(";") < len(containers)


def restored(text: str, containers: Sequence[Container], vendor: str) -> str:
    """Return HAMi's *text* with the n-th entry at the n-th container that asks *vendor*."""
    if not lost_entries(text, containers):
        return text
    entries = iter([part for part in text.split(";") if part])
    places = set(asking(containers, vendor))
    found = "".join(f"{next(entries) if place in places else ''};" for place in range(len(containers)))
    assert len(decode_pod_devices(found)) == len(containers) + 1
    return found


def restored_instances(text: str, containers: Sequence[Container], is_shifted: bool) -> str:
    """Return HAMi's MIG instances with the container that each is of: *is_shifted* ones count those that ask only."""
    found = json.loads(text)
    places = asking(containers, "NVIDIA")
    for instance in found if is_shifted else ():
        instance["containerIndex"] = places[instance["containerIndex"]]
    return json.dumps(found, separators=(",", ":"))


def annotations_of_ours(
    expected: dict[str, str], request: PodRequest, config: str, written: dict[str, str]
) -> dict[str, str]:
    """
    Return what HAMi patches, *expected*, as we write it: whole, with our times, and of vendors that are asked only.

    On a Node of several vendors HAMi writes a Pod of several containers the annotations of vendors it never asked.
    """
    share_keys = {
        key: rules.key
        for rules in vendors(config)
        for key in (rules.vendor.allocated_key, rules.vendor.to_allocate_key)
        if key
    }
    texts = [expected[key] for key, vendor in share_keys.items() if key in expected and vendor in request.constraints]
    is_shifted = any(lost_entries(text, request.containers) for text in texts)
    is_foreign = any(key in expected and vendor not in request.constraints for key, vendor in share_keys.items())
    found: dict[str, str] = {}
    for key, text in expected.items():
        if key in share_keys and share_keys[key] in request.constraints:
            found[key] = restored(text, request.containers, share_keys[key])
        elif key == keys.MIG_ALLOCATIONS:
            found[key] = restored_instances(text, request.containers, is_shifted)
        elif not (is_foreign and key not in written):
            found[key] = written[key] if text == "<time>" and written.get(key, "").isdecimal() else text
    return found


def held_over_time(shares: PodShares, init_count: int, *, are_inits_done: bool, as_hami: bool) -> Sums:
    """
    Return what a Pod takes of each device: the more of what an init container takes and of all others together.

    *as_hami* counts of an init container the larger share of a device, and one replica, however many shares it has.
    """
    most: Sums = {}
    for container in () if are_inits_done else shares[:init_count]:
        alone = _sums(container, share_by_share=as_hami)
        most = {uuid: _larger(most.get(uuid), alone.get(uuid)) for uuid in most.keys() | alone.keys()}
    together = _sums([share for container in shares[init_count:] for share in container], share_by_share=False)
    return {uuid: _larger(most.get(uuid), together.get(uuid)) for uuid in most.keys() | together.keys()}


def _sums(container: Sequence[Any], *, share_by_share: bool) -> Sums:
    found: Sums = {}
    for share in container:
        amounts = [1, share.memory_mib, share.core_percent]
        before = found.get(share.uuid, [0, 0, 0])
        together = [one + other for one, other in zip(before, amounts, strict=True)]
        found[share.uuid] = _larger(before, amounts) if share_by_share else together
    return found


def _larger(one: list[int] | None, other: list[int] | None) -> list[int]:
    return [max(a, b) for a, b in zip(one or [0, 0, 0], other or [0, 0, 0], strict=True)]


def says(sentences: Sequence[str], event: str) -> bool:
    """Return whether *sentences* of our Event say what HAMi's *event* says; ours names the first few Nodes only."""
    text, _, names = event.rstrip(")").partition("(")
    for sentence in sentences:
        ours, _, named = sentence.rstrip(")").partition("(")
        listed = named.removesuffix(",...")
        if ours == text and (names == named or (named != listed and names.startswith(listed))):
            return True
    return False

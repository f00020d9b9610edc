"""
Pods filtered one after the other, with Pods ending in between, by HAMi 2.10.0 and by us.
"""

import asyncio
import copy
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from hami_scheduler.bind.plan import plan_bind
from hami_scheduler.serve.filter import FilterAnswer, filter_pod
from hami_scheduler.values.reasons import Reason
from hami_scheduler.values.request import read_request
from hami_scheduler.values.vendor import VendorRules
from hamicommon.model import PodShares
from hamicommon.wire import keys
from hamicommon.wire.pod_devices import decode_pod_devices

from .support.builders import promises
from .support.hami_vectors import (
    Case,
    Sums,
    a_context,
    annotations_of_ours,
    by_name,
    cases,
    cluster_of,
    counts_containers_apart,
    held_over_time,
    policies_of,
)

SEQUENCES = cases("sequence")
WRITTEN_AT_BIND = {keys.BIND_PHASE, keys.BIND_TIME}


@dataclass
class Held:
    """A Pod that holds devices: what HAMi wrote for it, and what we wrote."""

    pod: dict[str, Any]
    hamis: dict[str, PodShares]
    """By vendor, as HAMi's annotation says; it may have lost entries (issue #2899)."""
    ours: dict[str, PodShares]

    @property
    def namespace(self) -> str:
        """Where the Pod is."""
        return str(self.pod["metadata"]["namespace"])

    @property
    def node(self) -> str:
        """Where it runs."""
        return str(self.pod["spec"]["nodeName"])

    def sums(self, vendor: str, *, as_hami: bool) -> Sums:
        """Return what it takes of each device of *vendor*, by HAMi's sums or by ours."""
        shares = (self.hamis if as_hami else self.ours).get(vendor, ())
        inits = self.pod["spec"].get("initContainers", ())
        done = bool(self.pod["status"].get("initContainerStatuses"))
        return held_over_time(shares, len(inits), are_inits_done=done, as_hami=as_hami)


class Run:
    """One sequence, on our cluster beside what HAMi answered."""

    def __init__(self, case: Case) -> None:
        """Start before the first step."""
        self.case = case
        self.cluster = cluster_of(case)
        self.context, _ = a_context(case, self.cluster)
        self.held: dict[str, Held] = {}
        self.differing: set[str] = set()
        """Nodes and namespaces of which HAMi's sums are not ours, so that HAMi may decide otherwise there."""

    def step(self, step: Case) -> None:
        """Do *step* and compare everything that HAMi answers to it."""
        if step["do"] == "filter":
            self._filter(step["pod"], step["out"])
        elif step["ref"] in self.held:
            self._end(step["ref"], step["do"])
        self._compare_sums(step["out"]["used"])
        self._compare_quotas(step["out"].get("quota", {}))

    def _filter(self, pod: dict[str, Any], out: Case) -> None:
        answer = asyncio.run(filter_pod(self.context, pod, self.case["node_names"], None))
        knows_otherwise = not self.differing.isdisjoint({pod["metadata"]["namespace"], *self.case["node_names"]})
        if not (knows_otherwise or self._is_refused_by_quota_here(pod, out, answer)):
            assert out.get("failed_nodes") == answer.failed_nodes
            assert out.get("node_names") == answer.node_names
        if answer.node_names != out.get("node_names"):
            self.cluster.unreserve(pod["metadata"]["uid"])
        if out.get("node_names"):
            self._bind(pod, out, is_free=knows_otherwise)

    def _is_refused_by_quota_here(self, pod: dict[str, Any], out: Case, answer: FilterAnswer) -> bool:
        """Return whether we refuse, by the quota alone, what HAMi's sum of containers lets pass."""
        is_otherwise = out.get("node_names") != answer.node_names or out.get("failed_nodes") != answer.failed_nodes
        return (
            is_otherwise
            and not answer.node_names
            and Reason.QUOTA in str(answer.failed_nodes)
            and counts_containers_apart(pod, self.case.get("quotas", []))
        )

    def _bind(self, pod: dict[str, Any], out: Case, *, is_free: bool) -> None:
        """Bind *pod* as HAMi did, so that both go on from the same state; *is_free* lets us choose otherwise."""
        request = read_request(pod, self.cluster.vendors, policies_of(self.case))
        pod = copy.deepcopy(pod)
        grant = self.cluster.ledger.grant(pod["metadata"]["uid"])
        written = {} if grant is None else plan_bind(grant, self.cluster.vendors, 1).annotations
        compared = {key: text for key, text in written.items() if key not in WRITTEN_AT_BIND}
        expected = annotations_of_ours(out["annotations"], request, self.case["flags"]["config"], compared)
        if grant is not None and not is_free:
            assert expected == compared
        pod["spec"]["nodeName"] = out["node_names"][0]
        pod["metadata"].setdefault("annotations", {}).update({**written, **expected})
        self.cluster.put_pod(pod)
        metadata = pod["metadata"]
        held = Held(pod, self._shares(out["annotations"]), self._shares(metadata["annotations"]))
        self.held[f"{metadata['namespace']}/{metadata['name']}"] = held

    def _shares(self, annotations: dict[str, str]) -> dict[str, PodShares]:
        return {
            rules.key: decode_pod_devices(annotations[rules.vendor.allocated_key])
            for rules in self.cluster.vendors
            if rules.vendor.allocated_key in annotations
        }

    def _end(self, ref: str, event: str) -> None:
        pod = self.held[ref].pod
        if event == "delete":
            del self.held[ref]
            self.cluster.drop_pod(pod)
            return
        if event == "terminating":
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        elif event == "init-done":
            pod["status"]["initContainerStatuses"] = [
                {"name": container["name"], "state": {"terminated": {"exitCode": 0}}}
                for container in pod["spec"].get("initContainers", ())
            ]
        else:
            pod["status"]["phase"] = event.capitalize()
            del self.held[ref]
        self.cluster.put_pod(pod)

    def _compare_sums(self, used: dict[str, Sums]) -> None:
        for name, hamis in used.items():
            here = [held for held in self.held.values() if held.node == name]
            assert hamis == self._total(here, as_hami=True)
            ours = self._total(here, as_hami=False)
            assert ours == promises(self.cluster, name)
            self._note(name, is_same=ours == hamis)

    def _total(self, pods: Iterable[Held], *, as_hami: bool) -> Sums:
        total: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        for held in pods:
            for vendor in held.ours:
                for uuid, amounts in held.sums(vendor, as_hami=as_hami).items():
                    total[uuid] = [one + other for one, other in zip(total[uuid], amounts, strict=True)]
        return {uuid: amounts for uuid, amounts in total.items() if any(amounts)}

    def _note(self, place: str, *, is_same: bool) -> None:
        """Remember whether HAMi's sums of a Node or a namespace are ours."""
        if is_same:
            self.differing.discard(place)
        else:
            self.differing.add(place)

    def _compare_quotas(self, quota: dict[str, dict[str, list[int]]]) -> None:
        ours = {(use.namespace, use.resource): use for use in self.cluster.quotas.uses()}
        for namespace, resources in quota.items():
            self._note(namespace, is_same=True)
            for rules in self.cluster.vendors:
                for resource, column, unit in _limited(rules):
                    if resource not in resources:
                        continue
                    used, limit = resources[resource]
                    found = ours.get((namespace, resource))
                    assert used == self._held(namespace, rules.key, column, as_hami=True)
                    ours_used = self._held(namespace, rules.key, column, as_hami=False)
                    assert ours_used == (found.used if found else 0)
                    if ours_used != used:
                        self._note(namespace, is_same=False)
                    assert (None if limit < 0 else limit * unit) == (found.limit if found else None)

    def _held(self, namespace: str, vendor: str, column: int, *, as_hami: bool) -> int:
        sums = [held.sums(vendor, as_hami=as_hami) for held in self.held.values() if held.namespace == namespace]
        return sum(amounts[column] for each in sums for amounts in each.values())


def _limited(rules: VendorRules) -> tuple[tuple[str, int, int], ...]:
    """Return the resources a quota limits, the column of sums that it limits, and MiB per unit of a limit on memory."""
    vendor = rules.vendor
    return (vendor.memory_resource_name, 1, vendor.memory_factor), (vendor.core_resource_name, 2, 1)


@pytest.mark.parametrize("case", by_name(SEQUENCES))
def test_pods_one_after_the_other_are_placed_as_by_hami(case: Case) -> None:
    """Every filter gives HAMi's Node, shares and annotations; after every step devices and quotas have HAMi's sums."""
    run = Run(case)
    for step in case["steps"]:
        run.step(step)

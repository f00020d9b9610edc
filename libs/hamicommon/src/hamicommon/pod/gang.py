"""
The gang of a Pod: Pods of one namespace that are of use only together.

Owns by which fields each of three programs knows its gangs. A tenant writes all of them, so each is read only as far as
its form allows. Must never count the members.
Sources: kubernetes 1.37.2, staging/src/k8s.io/api/core/v1/types.go (`PodSchedulingGroup`); Kueue 0.17.0,
pkg/controller/jobs/pod/constants; HAMi 2.10, pkg/util/util.go (`IsPodGroupMember`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

_KUEUE_NAME: Final = "kueue.x-k8s.io/pod-group-name"
_KUEUE_SIZE: Final = "kueue.x-k8s.io/pod-group-total-count"
_COSCHEDULING: Final = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io")
_COUNT: Final = re.compile(r"[1-9][0-9]{0,5}")


class GangKind(StrEnum):
    """The program that keeps a gang together."""

    POD_GROUP = "PodGroup"
    """kube-scheduler itself: it places the whole gang in one cycle, and binds nothing unless enough members fit."""
    COSCHEDULING = "coscheduling"
    """A plugin of kube-scheduler: members that have a Node wait unbound for the others."""
    KUEUE = "Kueue Pod group"
    """Kueue: members have a scheduling gate until their quota has room for all. kube-scheduler places each alone."""


@dataclass(frozen=True, slots=True)
class Gang:
    """One gang. Equal for all its members that agree about its size."""

    kind: GangKind
    namespace: str
    name: str
    size: int | None = None
    """How many Pods it has, if its Pods say so."""

    @property
    def is_placed_together(self) -> bool:
        """Whether kube-scheduler holds its members back after a filter until others have a Node, too."""
        return self.kind is not GangKind.KUEUE


def gang_of(pod: Mapping[str, Any]) -> Gang | None:
    """
    Return the gang of *pod*, a v1 Pod, None if it is in none.

    If several programs know one, the one that decides last counts: kube-scheduler.

    >>> gang_of({"metadata": {"namespace": "a"}, "spec": {"schedulingGroup": {"podGroupName": "ranks"}}}).name
    'ranks'
    """
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    namespace = str(metadata.get("namespace") or "default")
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    group = spec.get("schedulingGroup")
    named = group.get("podGroupName") if isinstance(group, Mapping) else None
    if named:
        return Gang(GangKind.POD_GROUP, namespace, str(named))
    for label in _COSCHEDULING:
        if labels.get(label):
            return Gang(GangKind.COSCHEDULING, namespace, str(labels[label]))
    if labels.get(_KUEUE_NAME):
        count = str(annotations.get(_KUEUE_SIZE) or "")
        size = int(count) if _COUNT.fullmatch(count) else None
        return Gang(GangKind.KUEUE, namespace, str(labels[_KUEUE_NAME]), size)
    return None

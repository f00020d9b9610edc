"""
Which Pods may go to Nodes with a device plugin, and which to Nodes that give tokens.
"""

from typing import Any

import pytest

from hami_scheduler.search.filter import filter_nodes
from hami_scheduler.state.cluster import Cluster
from hami_scheduler.values.policies import Policies
from hami_scheduler.values.request import PodRequest, read_request
from hamicommon.dra.names import TOKEN_CLASS
from hamicommon.dra.tokens import encode_tokens
from hamicommon.model import Object
from hamicommon.wire.keys import DEVICE_AMOUNTS

from ..state.test_claims import a_slice
from ..support.builders import QUOTA, a_cluster, a_container, a_device, a_node, a_pod, vendors

CLAIM_STATUS = {"extendedResourceClaimStatus": {"resourceClaimName": "p-extended-resources-x"}}


def a_mixed_cluster(*, tokens: int = 10, mapping: str = TOKEN_CLASS, healthy: bool = True) -> Cluster:
    """Return a cluster with the Node `plugin`, and `dra`, which gives tokens for its device."""
    dra = a_node("dra", a_device("GPU-dra", healthy=healthy), replicas=0, hami_io__node_kind="dra")
    cluster = a_cluster(a_node("plugin", a_device("GPU-plugin")), dra)
    item = a_slice("dra", devices=0)
    item["spec"]["devices"] = [token for part in encode_tokens(tokens) for token in part["devices"]]
    cluster.claims.replace_slices([item])
    cluster.map_count(mapping)
    return cluster


def asking(pod: Object, **status: Any) -> PodRequest:
    """Return what *pod* asks, with *status*."""
    return read_request({**pod, "status": {**pod.get("status", {}), **status}}, vendors(), Policies())


def refused(cluster: Cluster, request: PodRequest, *names: str) -> dict[str, str]:
    """Return why Nodes refuse *request*, all of them by default."""
    candidates = list(names or ("plugin", "dra"))
    return dict(filter_nodes(request, candidates, cluster.view, explain_all=True).refusal.failed_nodes)


def test_pod_that_asks_by_resources_may_go_to_both_kinds() -> None:
    """With one ledger, whose devices are the same on both."""
    cluster = a_mixed_cluster()

    assert {} == refused(cluster, asking(a_pod()))
    found = filter_nodes(asking(a_pod()), ["dra"], cluster.view)
    assert found.placement is not None
    assert ["GPU-dra"] == [share.uuid for shares in found.placement.shares["NVIDIA"] for share in shares]


@pytest.mark.parametrize("changes", [{"tokens": 0}, {"mapping": ""}, {"mapping": "gpu.nvidia.com"}])
def test_node_without_tokens_that_kube_scheduler_would_give_takes_none(changes: dict[str, Any]) -> None:
    """It would bind the Pod there without a claim, and the Pod would start without a device."""
    found = refused(a_mixed_cluster(**changes), asking(a_pod()))

    assert {"dra": "node gives devices by ResourceClaims"} == found


def test_tokens_count_like_a_kubelets_replicas() -> None:
    """A Node takes no more Pods than it has tokens, whatever its devices could take, until one ends."""
    cluster = a_mixed_cluster(tokens=1)
    first = a_pod("first", node="dra", allocated="GPU-dra,NVIDIA,1000,0:;")
    cluster.put_pod(first)

    assert ["dra"] == list(refused(cluster, asking(a_pod()), "dra"))
    cluster.drop_pod({**first, "status": {"phase": "Succeeded"}})
    assert {} == refused(cluster, asking(a_pod()), "dra")


def test_unhealthy_device_of_tokens_takes_none() -> None:
    """Its tokens stay, because kube-scheduler would choose others of the Node."""
    assert {"dra": "1/1 CardNotHealth"} == refused(a_mixed_cluster(healthy=False), asking(a_pod()), "dra")


def test_pod_that_names_a_claim_goes_to_nodes_that_prepare_it_only() -> None:
    """The kubelet of a Node with a device plugin would wait for that claim for ever."""
    found = refused(a_mixed_cluster(), asking(a_pod(), **CLAIM_STATUS))

    assert {"plugin": "Pod names a ResourceClaim, which a device plugin does not prepare"} == found


@pytest.mark.parametrize("mapping", ["", TOKEN_CLASS, "gpu.nvidia.com"])
def test_pod_with_a_claim_of_its_own_is_kept_from_plugin_nodes_while_the_count_is_mapped(mapping: str) -> None:
    """kube-scheduler makes an empty second claim there, and never binds the Pod."""
    pod = a_pod()
    pod["spec"]["resourceClaims"] = [{"name": "nic", "resourceClaimName": "nic"}]

    assert bool(mapping) is ("plugin" in refused(a_mixed_cluster(mapping=mapping), asking(pod)))


def test_init_container_with_devices_of_its_own_is_kept_from_nodes_of_tokens() -> None:
    """A claim would have one request for it and the later container, which get different shares."""
    pod = a_pod()
    pod["spec"]["initContainers"] = [{**pod["spec"]["containers"][0], "name": "init"}]
    found = refused(a_mixed_cluster(), asking(pod))
    assert {"dra": "a claim has one request for an init container and a later one"} == found

    pod["spec"]["initContainers"][0]["restartPolicy"] = "Always"
    assert {} == refused(a_mixed_cluster(), asking(pod)), "a sidecar has a request of its own"


def test_pod_asks_for_the_amounts_that_were_moved_and_its_namespace_pays_for_them() -> None:
    """By whomever they were written: as if they were in its limits."""
    pod = a_pod("p", a_container(gpu=1), annotations={DEVICE_AMOUNTS: '{"app":{"nvidia.com/gpumem":"3000"}}'})
    cluster = a_mixed_cluster()
    found = filter_nodes(asking(pod), ["dra"], cluster.view)
    assert found.placement is not None
    assert [3000] == [share.memory_mib for shares in found.placement.shares["NVIDIA"] for share in shares]

    cluster.quotas.put({**QUOTA, "spec": {"hard": {"limits.nvidia.com/gpumem": "2999"}}})
    assert {"dra": "1/1 ResourceQuotaNotFit"} == refused(cluster, asking(pod), "dra")


def test_pods_of_other_vendors_do_not_mind_the_kind() -> None:
    """Only NVIDIA devices are given by tokens."""
    pod = a_pod()
    pod["spec"]["containers"][0]["resources"]["limits"] = {"hygon.com/dcunum": "1"}
    found = refused(a_mixed_cluster(), asking(pod, **CLAIM_STATUS))

    assert {"plugin": "NodeInsufficientDevice", "dra": "NodeInsufficientDevice"} == found

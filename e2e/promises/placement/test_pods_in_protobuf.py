"""
The scheduler reads the same from a watch of Pods in protobuf as from JSON.
"""

import pytest

from hami_scheduler.serve.kube.pods import PROTOBUF, PodReader, trimmed
from hamicommon.model import Object
from hamicommon.runtime.api.kube import Kube
from harness.cluster import Cluster
from harness.manifests import a_container, a_pod

pytestmark = pytest.mark.real_only
"""The embedded API server has no protobuf."""

PODS = "/api/v1/pods"


async def test_watch_in_protobuf_equals_a_list_in_json(cluster: Cluster) -> None:
    """kube-apiserver decides the field numbers, and which empty fields it writes."""
    init = a_container("init", command=("true",), gpu=1, gpumem=500)
    sidecar = {**a_container("sidecar", command=("sleep", "infinity")), "restartPolicy": "Always"}
    wanted = a_pod(
        "whole",
        containers=[a_container(gpu=1, gpumem=1000)],
        init_containers=[init, sidecar],
        annotations={"example.com/note": "größer als 1"},
        spec={"priorityClassName": "system-cluster-critical"},
    )
    wanted["metadata"]["labels"] = {"app": "whole"}
    await cluster.create(wanted)
    uid = (await cluster.pod_in_phase("whole", "Running"))["metadata"]["uid"]

    async with await Kube.connect(str(cluster.kubeconfig), "e2e") as kube:
        listed = {pod["metadata"]["uid"]: trimmed(pod) async for pod in kube.items(PODS)}
        watched: dict[str, Object] = {}
        async for kind, pod in kube.watch(PODS, 3, {PROTOBUF: PodReader}):
            if kind == "ADDED":
                watched[pod["metadata"]["uid"]] = pod
    unchanged = [key for key, pod in listed.items() if _version(watched.get(key)) == _version(pod)]

    assert uid in unchanged
    assert {key: listed[key] for key in unchanged} == {key: watched[key] for key in unchanged}
    told = watched[uid]
    assert {"name": "init", "state": {"terminated": {"exitCode": 0}}} in told["status"]["initContainerStatuses"]
    assert {"init", "sidecar"} == {container["name"] for container in told["spec"]["initContainers"]}
    assert (2_000_000_000, "whole") == (told["spec"]["priority"], told["metadata"]["labels"]["app"])


def _version(pod: Object | None) -> str:
    return pod["metadata"]["resourceVersion"] if pod else "none"

"""
Which container and Pod a process on a device belongs to.
"""

import pytest

from hami_monitor.decide.watchdog.owners import PodOwner, pod_owner
from hamicommon.model import Object


def test_pod_tells_its_containers_by_id() -> None:
    """Init, ordinary and ephemeral ones that were started; the others have no id yet."""
    names = {"initContainerStatuses": "first", "containerStatuses": "main", "ephemeralContainerStatuses": "debugger"}
    status = {kind: [{"name": name, "containerID": f"containerd://{name}-id"}] for kind, name in names.items()}
    status["containerStatuses"].append({"name": "waiting"})

    owner = pod_owner({"metadata": {"namespace": "ns", "name": "p"}, "status": status})

    assert PodOwner("ns", "p", {f"{name}-id": name for name in names.values()}) == owner


def test_container_without_library_is_known_from_its_pod() -> None:
    """The device plugin mounts no library if any such variable is true."""
    given_values: dict[str, list[str | None]] = {"off": ["0", "true"], "on": ["false"], "odd": [None, "yes"]}
    containers = [
        {"name": name, "env": [{"name": "CUDA_DISABLE_CONTROL", "value": value} for value in values]}
        for name, values in given_values.items()
    ]

    assert frozenset({"off"}) == pod_owner({"spec": {"containers": containers}}).without_library


@pytest.mark.parametrize(
    "pod",
    [
        {"spec": {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "not-made-yet"}]}},
        {
            "status": {
                "extendedResourceClaimStatus": {
                    "resourceClaimName": "p-extended-resources-x",
                    "requestMappings": [
                        {
                            "containerName": "main",
                            "resourceName": "nvidia.com/gpu",
                            "requestName": "r",
                        }
                    ],
                }
            }
        },
    ],
    ids=["in-its-spec", "for-an-extended-resource"],
)
def test_pod_with_a_claim_may_have_devices_of_a_dra_driver(pod: Object) -> None:
    """kube-scheduler says in the status alone that it made a claim for an extended resource."""
    pod.setdefault("spec", {})["containers"] = [{"name": "main"}]

    assert pod_owner(pod).has_claims
    assert not pod_owner({"spec": {"containers": [{"name": "main"}]}}).has_claims

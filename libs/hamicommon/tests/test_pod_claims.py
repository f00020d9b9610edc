"""
Which ResourceClaims a Pod's containers use.
"""

from typing import Any

import pytest

from hamicommon.pod.claims import ClaimUse
from hamicommon.pod.reading import read_pod
from hamicommon.wire.errors import DecodeError


def a_pod(*claims: dict[str, Any], entries: list[Any] | None = None, **status: Any) -> dict[str, Any]:
    """Return a Pod whose container `main` has *claims*; `init` has none."""
    containers = [{"name": "main", "resources": {"claims": list(claims)}}]
    return {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {"resourceClaims": entries, "initContainers": [{"name": "init"}], "containers": containers},
        "status": status,
    }


def test_container_uses_a_whole_claim_or_one_request() -> None:
    """The claim is found by its entry in the Pod's spec."""
    pod = a_pod(
        {"name": "a"},
        {"name": "b", "request": "big"},
        entries=[
            {"name": "a", "resourceClaimName": "claim-a"},
            {"name": "b", "resourceClaimName": "claim-b"},
        ],
    )

    assert {"main": (ClaimUse("claim-a"), ClaimUse("claim-b", "big"))} == read_pod(pod).claims


def test_claim_of_a_template_is_known_once_it_exists() -> None:
    """Kubernetes then writes its name into the Pod's status."""
    pod = a_pod({"name": "a"}, entries=[{"name": "a", "resourceClaimTemplateName": "t"}])
    made = pod | {"status": {"resourceClaimStatuses": [{"name": "a", "resourceClaimName": "p-a-x7f2"}]}}

    assert {} == read_pod(pod).claims
    assert {"main": (ClaimUse("p-a-x7f2"),)} == read_pod(made).claims


def test_claim_of_an_extended_resource_is_in_the_status() -> None:
    """The Pod's spec does not name it."""
    mapping = {"containerName": "main", "resourceName": "nvidia.com/gpu", "requestName": "container-0-request-0"}
    status = {"resourceClaimName": "p-extended-resources-x", "requestMappings": [mapping]}

    found = read_pod(a_pod(extendedResourceClaimStatus=status)).claims

    assert {"main": (ClaimUse("p-extended-resources-x", "container-0-request-0", is_extended=True),)} == found


def test_claim_of_another_form_is_an_error() -> None:
    """It names the place."""
    with pytest.raises(DecodeError, match=r"Pod.spec.resourceClaims\[0\]: must be an object, not str"):
        read_pod(a_pod({"name": "a"}, entries=["x"]))

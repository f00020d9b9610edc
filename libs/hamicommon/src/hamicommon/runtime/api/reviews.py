"""
Ask the API server who owns a token, and what its owner may do.

Needs the right to create TokenReviews and SubjectAccessReviews.
"""

from hamicommon.runtime.api.kube import Kube

_TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESSES = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


async def may_get(kube: Kube, path: str, token: str) -> bool | None:
    """
    Return whether the owner of *token* may `get` the *path* of a service, None if nobody owns it.

    Raises:
        KubeError: the API server does not answer, or refuses.
    """
    review = await kube.create(
        _TOKENS, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    )
    found = review.get("status") or {}
    if not found.get("authenticated"):
        return None
    user = found.get("user") or {}
    spec = {
        "user": user.get("username", ""),
        "uid": user.get("uid", ""),
        "groups": user.get("groups") or [],
        "extra": user.get("extra") or {},
        "nonResourceAttributes": {"path": path, "verb": "get"},
    }
    answer = await kube.create(
        _ACCESSES, {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    )
    return bool((answer.get("status") or {}).get("allowed"))

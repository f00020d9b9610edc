"""
Decide whether the containers that use a claim may have its shares.

A container has one region and one set of limits, so it uses one request of one claim of this driver. With more, the
library would refuse it every device but those of the last, so its start is refused here, with words.
"""

from collections.abc import Iterable, Iterator, Sequence

from hami_device_plugin.decide.allocate.pods import Sharing
from hami_device_plugin.decide.dra.grant import ClaimError
from hamicommon.dra.grants import ClaimGrant, Requests, requests_of, used_requests
from hamicommon.pod.reading import Pod


def sharing_by_claims(pods: Iterable[Pod], grants: Iterable[ClaimGrant]) -> Iterator[Sharing]:
    """Yield each container of *pods* that uses one of *grants*, with its shares. A MIG instance is none."""
    granted = {(grant.namespace, grant.name): grant for grant in grants if not grant.has_instances}
    requests = requests_of(granted.values())
    for pod in pods:
        for container in pod.containers:
            for claim, request in used_requests(pod.namespace, pod.claims.get(container.name, ()), requests):
                yield pod, container, granted[pod.namespace, claim].shares(request)


def check_users(pods: Sequence[Pod], claim: str, requests: Requests) -> None:
    """
    Check the containers of *pods* that use *claim*.

    Raises:
        ClaimError: one is privileged, or uses several requests.
    """
    for pod in pods:
        for container in pod.containers:
            used = used_requests(pod.namespace, pod.claims.get(container.name, ()), requests)
            if not any(name == claim for name, _ in used):
                continue
            place = f"ResourceClaim {pod.namespace}/{claim}, Pod {pod}, container {container.name}"
            if container.is_privileged:
                raise ClaimError(
                    f"{place} is privileged: it would see every device of the Node, so it gets no share; take away "
                    "securityContext.privileged, or its claims"
                )
            if len(used) > 1:
                named = ", ".join(f"{name}/{request}" for name, request in used)
                raise ClaimError(
                    f"{place} uses several requests: {named}. Its limits can be those of one: name it in "
                    "resources.claims[].request, or ask for several devices by one request with a count"
                )

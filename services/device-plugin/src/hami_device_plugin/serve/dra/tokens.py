"""
Prepare the ResourceClaims of Pods that ask for devices by resources.

Such a Pod has a grant, as on a Node with a device plugin, and gets the same: directories, region, limits, all by the
name of its container. Only the way differs in which the runtime learns of it: a CDI device for each token. The specs
are the Pod's, so they end with it, and nothing else has to be remembered.
Neighbours: `claims` brings the claims, `decide.dra.tokens` decides, `allocate.calls` prepares the containers.
"""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from hami_device_plugin.adapters import cdi_files
from hami_device_plugin.decide.allocate.pods import granted_shares
from hami_device_plugin.decide.dra.grant import ClaimError, cdi_devices
from hami_device_plugin.decide.dra.tokens import containers_by_request, token_grant
from hami_device_plugin.serve.allocate.identity import Wanted
from hami_device_plugin.serve.context import Context
from hamicommon.dra.claims import Claim
from hamicommon.dra.grants import ClaimGrant
from hamicommon.pod.reading import Pod

PrepareContainers = Callable[[Pod, Sequence[Wanted]], Awaitable[None]]
"""Prepares containers of a Pod."""


class Tokens:
    """The claims of tokens of one session."""

    def __init__(self, context: Context, prepare_containers: PrepareContainers) -> None:
        """Prepare by *prepare_containers*."""
        self._context = context
        self._prepare_containers = prepare_containers

    async def prepare(self, claim: Claim) -> ClaimGrant:
        """
        Prepare the containers of the Pod for which *claim* was made, and return its grant.

        Raises:
            HamiError: it cannot be prepared now; the message names the claim or the Pod.
        """
        config, vendor = self._context.config, self._context.vendor
        if len(claim.pod_uids) != 1:
            raise ClaimError(f"ResourceClaim {claim} has tokens for {len(claim.pod_uids)} Pods; it is made for one")
        pod = await self._context.view.wait_pod(claim.pod_uids[0])
        containers = containers_by_request(claim, pod, config.node_name, vendor.key)
        granted = granted_shares(pod, config.node_name, vendor)
        grant = token_grant(claim, {request: granted.get(name, ()) for request, name in containers.items()})
        wanted = [
            Wanted(name, cdi_devices(grant, request), frozenset(_tokens(grant, request)), is_of_claim=True)
            for request, name in containers.items()
        ]
        await self._prepare_containers(pod, wanted)
        return grant

    def forget(self, claim_uid: str) -> None:
        """Remove the specs of a claim; the rest is the Pod's, and ends with it. Raises: OSError."""
        for path in cdi_files.token_specs(Path(self._context.config.cdi_root), claim_uid):
            path.unlink(missing_ok=True)


def _tokens(grant: ClaimGrant, request: str) -> Sequence[str]:
    return [result.device for result in grant.results if result.request == request]

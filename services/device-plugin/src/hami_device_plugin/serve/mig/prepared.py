"""
The prepared ResourceClaims of this Node, as owners of MIG instances.

Neighbours: `instances` asks, `serve.dra` prepares claims, `claim_records` has their records.
"""

from pathlib import Path

from hami_device_plugin.adapters.claim_records import ClaimRecords
from hami_device_plugin.adapters.dra_kube import DraKube
from hami_device_plugin.decide.dra.instances import with_prepared
from hami_device_plugin.decide.mig.claims import Claims
from hami_device_plugin.decide.mig.journal import Owner
from hamicommon.errors import HamiError


class PreparedClaims:
    """The claims of which there is a record."""

    def __init__(self, vgpu_directory: Path, kube: DraKube) -> None:
        """Read the records below *vgpu_directory* of the host, and claims by *kube*."""
        self._records = ClaimRecords.of_node(vgpu_directory)
        self._kube = kube

    def added_to(self, claims: Claims) -> Claims:
        """Return *claims* and what prepared ResourceClaims have."""
        return with_prepared(claims, self._records.read().values())

    async def is_over(self, owner: Owner) -> bool:
        """Ask the API server whether a ResourceClaim is gone or not allocated; False if that is unknown."""
        try:
            item = await self._kube.claim(owner.namespace, owner.name)
        except HamiError:
            return False
        is_another = item is None or (item.get("metadata") or {}).get("uid") != owner.uid
        return is_another or not ((item or {}).get("status") or {}).get("allocation")

"""
What prepared ResourceClaims have of GPUs with MIG, in the terms of `decide.mig`.

A claim's record promises its instances as a Pod's annotation does. So one journal and one repair serve both.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from hami_device_plugin.decide.mig.claims import Claim, Claims
from hami_device_plugin.decide.mig.journal import Entry, Owner
from hamicommon.dra.grants import ClaimGrant


def claim_owner(grant: ClaimGrant) -> Owner:
    """Return the claim of *grant* as an owner."""
    return Owner(grant.uid, grant.namespace, grant.name, is_claim=True)


def promised_instances(grant: ClaimGrant) -> tuple[Claim, ...]:
    """Return the instances of *grant*, in the order of its results."""
    owner = claim_owner(grant)
    return tuple(Claim(owner, result.instance) for result in grant.results if result.instance is not None)


def with_prepared(claims: Claims, grants: Iterable[ClaimGrant]) -> Claims:
    """Return *claims* and what *grants*, those of prepared ResourceClaims, have."""
    promised = list(claims.promised)
    uids, users, unclear = set(claims.owner_uids), dict(claims.users), dict(claims.unclear)
    for grant in grants:
        promised += promised_instances(grant)
        uids.add(grant.uid)
        for result in grant.results:
            uuid = result.share.uuid
            users[uuid] = users.get(uuid, frozenset()) | {str(grant)}
            if result.instance is None:
                unclear[uuid] = f"{grant} holds a share of it that is no MIG instance"
    return replace(claims, promised=tuple(promised), owner_uids=frozenset(uids), users=users, unclear=unclear)


def with_identities(grant: ClaimGrant, entries: Sequence[Entry]) -> ClaimGrant:
    """Return *grant* with the identity of its instances: *entries*, in the order of `promised_instances`."""
    left = iter(entries)
    return replace(
        grant,
        results=tuple(
            result if result.instance is None else replace(result, instance=next(left).named(result.instance))
            for result in grant.results
        ),
    )

"""
What ResourceClaims hold: the allocated results of our DRA driver, as grants in the ledger.

Owns the claims and slices as they are now. What is counted depends on them alone, so that neither their order nor a
restart matters. A result names a device by pool and name, and only a slice says which UUID that is. A MIG instance is
a share of its GPU and has its place, as one that an annotation grants. A grant of a claim has no Pod: it is in no
quota, reserves nothing, and no Pod's end frees it. Must never count a claim twice, however many Pods share it.
Neighbours: `ledger` adds the grants up, `cluster` says what Nodes offer.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hami_scheduler.state.ledger import Ledger
from hami_scheduler.values.grant import Grant
from hami_scheduler.values.inventory import Problem
from hamicommon.dra.claims import Claim, read_claim
from hamicommon.dra.slices import Pool, Slice, decode_slice, pools, token_count
from hamicommon.model import MigAllocation
from hamicommon.pod.amounts import NOTHING, Amounts
from hamicommon.wire.errors import DecodeError

_NO_DEVICES: Pool = {}
_COLLECTIONS = 2
"""Claims and slices."""


class Claims:
    """The ResourceClaims of the cluster, and the ResourceSlices that say what they name."""

    def __init__(
        self, ledger: Ledger, offer: Callable[[str], None], report: Callable[[str, str, Problem], None]
    ) -> None:
        """Count in *ledger*; *offer* is called with a Node whose slices offer something else than before."""
        self._ledger = ledger
        self._offer = offer
        self._report = report
        self._claims: dict[str, Claim] = {}
        """Per UID: the claims with results of our driver."""
        self._of_pool: dict[str, set[str]] = {}
        """Per pool: the UIDs of the claims with results in it."""
        self._slices: dict[str, dict[str, Slice]] = {}
        """Per Node and name."""
        self._node_of_slice: dict[str, str] = {}
        self._pools: dict[str, Pool] = {}
        self._tokens: dict[str, int] = {}
        """Per Node that has any."""
        self._listed: set[str] = set()
        """The collections of which a first list has arrived."""
        self._unknown: dict[tuple[str, str], tuple[str, ...]] = {}
        """Per claim UID and pool: the devices that no slice lists."""
        self._reported: dict[str, frozenset[str]] = {}
        """Per object: what was reported of it and is still so."""

    @property
    def unknown_devices(self) -> int:
        """How many results name a device that no slice lists; 0 until claims and slices have been listed."""
        return sum(map(len, self._unknown.values())) if self._is_complete else 0

    def pool(self, node: str) -> Pool:
        """Return the devices that the slices of *node* offer, by name; none while they are being written."""
        return self._pools.get(node, _NO_DEVICES)

    def tokens(self, node: str) -> int:
        """Return how many tokens the slices of *node* offer; none while they are being written."""
        return self._tokens.get(node, 0)

    # Claims

    def put_claim(self, item: Mapping[str, Any]) -> None:
        """Take *item*, a ResourceClaim, as it is now."""
        uid = _uid(item)
        try:
            claim, problems = read_claim(item)
        except DecodeError as error:
            self._forget(uid)
            self._tell("ResourceClaim", _name(item), (error,))
            return
        self._tell("ResourceClaim", str(claim), problems)
        before = self._claims.pop(uid, None)
        if claim.results:
            self._claims[uid] = claim
        for pool in {*_pools_of(before), *_pools_of(claim)}:
            self._count(uid, pool)

    def drop_claim(self, item: Mapping[str, Any]) -> None:
        """Forget *item*, a ResourceClaim."""
        self._forget(_uid(item))
        self._reported.pop(f"ResourceClaim {_name(item)}", None)

    def replace_claims(self, items: list[dict[str, Any]]) -> None:
        """Take *items* as all claims there are."""
        seen = set(map(_uid, items))
        for uid in [uid for uid in self._claims if uid not in seen]:
            self._forget(uid)
        self._keep_reported("ResourceClaim", items)
        for item in items:
            self.put_claim(item)
        self._has_listed("claims")

    def _forget(self, uid: str) -> None:
        for pool in _pools_of(self._claims.pop(uid, None)):
            self._count(uid, pool)

    # Slices

    def put_slice(self, item: Mapping[str, Any]) -> None:
        """Take *item*, a ResourceSlice, as it is now. One that cannot be read offers nothing."""
        found: Slice | None = None
        problems: tuple[DecodeError, ...] = ()
        try:
            found = decode_slice(item)
        except DecodeError as error:
            problems = (error,)
        name = _name(item)
        self._tell("ResourceSlice", name, problems)
        before = self._node_of_slice.pop(name, "")
        if before:
            del self._slices[before][name]
        if found is not None:
            self._node_of_slice[name] = found.node
            self._slices.setdefault(found.node, {})[name] = found
        for node in {before, found.node if found else ""} - {""}:
            self._refresh(node)

    def drop_slice(self, item: Mapping[str, Any]) -> None:
        """Forget *item*, a ResourceSlice."""
        name = _name(item)
        node = self._node_of_slice.pop(name, "")
        self._reported.pop(f"ResourceSlice {name}", None)
        if node:
            del self._slices[node][name]
            self._refresh(node)

    def replace_slices(self, items: list[dict[str, Any]]) -> None:
        """Take *items* as all slices there are."""
        names = set(map(_name, items))
        for name in [name for name in self._node_of_slice if name not in names]:
            self.drop_slice({"metadata": {"name": name}})
        self._keep_reported("ResourceSlice", items)
        for item in items:
            self.put_slice(item)
        self._has_listed("slices")

    def _refresh(self, node: str) -> None:
        """Let *node* offer what its slices list, and count its claims by them."""
        slices = self._slices[node]
        found, problems = pools(slices.values())
        self._tell("ResourceSlice pool", node, problems)
        if not slices:
            del self._slices[node]
        before, after = self.pool(node), found.get(node, _NO_DEVICES)
        tokens_before, tokens = self.tokens(node), token_count(slices.values())
        if before == after and tokens_before == tokens:
            return
        self._tokens[node] = tokens
        if not tokens:
            del self._tokens[node]
        self._pools[node] = after
        if not after:
            del self._pools[node]
        self._offer(node)
        for uid in sorted(self._of_pool.get(node, ())):
            self._count(uid, node)

    # Counting

    def _count(self, uid: str, pool: str) -> None:
        """Count what the claim *uid* holds in *pool*, which is a Node, instead of what it held there."""
        claim = self._claims.get(uid)
        results = [result for result in claim.results if result.pool == pool] if claim else []
        if results:
            self._of_pool.setdefault(pool, set()).add(uid)
        elif pool in self._of_pool:
            self._of_pool[pool].discard(uid)
            if not self._of_pool[pool]:
                del self._of_pool[pool]
        devices = self.pool(pool)
        held: dict[str, Amounts] = {}
        instances: list[MigAllocation] = []
        unknown: list[str] = []
        for result in results:
            listed = devices.get(result.device)
            if listed is None:
                unknown.append(result.device)
            elif not result.is_admin:
                held[listed.device.id] = held.get(listed.device.id, NOTHING).plus(result.of(listed.device))
                instances += [listed.instance] if listed.instance else []
        key = f"{uid}/{pool}"
        if claim is not None and held:
            self._ledger.put(Grant(key, claim.namespace, claim.name, pool, (), {}, mig=tuple(instances), claimed=held))
        else:
            self._ledger.drop(key)
        self._unknown.pop((uid, pool), None)
        if unknown:
            self._unknown[uid, pool] = tuple(unknown)
        self._tell_unknown(uid, pool)

    # Reporting

    @property
    def _is_complete(self) -> bool:
        return len(self._listed) == _COLLECTIONS

    def _has_listed(self, collection: str) -> None:
        was_complete = self._is_complete
        self._listed.add(collection)
        if self._is_complete and not was_complete:
            for uid, pool in self._unknown:
                self._tell_unknown(uid, pool)

    def _tell_unknown(self, uid: str, pool: str) -> None:
        """Report the devices of a claim that no slice lists, once claims and slices have been listed."""
        place = f"device {uid}/{pool}"
        unknown = self._unknown.get((uid, pool), ())
        if not unknown:
            self._reported.pop(place, None)
        elif self._is_complete and place not in self._reported:
            self._reported[place] = frozenset(unknown)
            reason = f"names {', '.join(unknown)} of pool {pool}, which no ResourceSlice lists; it does not count"
            self._report("ResourceClaim", str(self._claims[uid]), Problem("status.allocation", reason))

    def _tell(self, kind: str, name: str, problems: Iterable[DecodeError]) -> None:
        """Report each of *problems* of an object once, as long as it lasts."""
        place = f"{kind} {name}"
        reasons = frozenset(map(str, problems))
        for reason in sorted(reasons - self._reported.get(place, frozenset())):
            self._report(kind, name, Problem("dra", reason))
        self._reported.pop(place, None)
        if reasons:
            self._reported[place] = reasons

    def _keep_reported(self, kind: str, items: Iterable[Mapping[str, Any]]) -> None:
        """Forget what was reported of objects of *kind* that are not among *items*."""
        left = {f"{kind} {_name(item)}" for item in items}
        self._reported = {
            place: told for place, told in self._reported.items() if not place.startswith(f"{kind} ") or place in left
        }


def _pools_of(claim: Claim | None) -> set[str]:
    return {result.pool for result in claim.results} if claim else set()


def _uid(item: Mapping[str, Any]) -> str:
    return str((item.get("metadata") or {}).get("uid") or "")


def _name(item: Mapping[str, Any]) -> str:
    """Return the name of an object, with its namespace if it has one."""
    metadata = item.get("metadata") or {}
    namespace, name = metadata.get("namespace"), str(metadata.get("name"))
    return f"{namespace}/{name}" if namespace else name

"""
Create, update, patch and delete objects.

Owns the order of a write (decode, default, admit, prepare, validate, count in quotas, store) and the result of
concurrent writes. Nothing is awaited between the last read of the stored object and the write. Neighbours:
`strategies` and `pods` have the rules of kinds, `admission` may reject, `subresources` adds Binding and eviction.
Source: k8s.io/apiserver/pkg/registry/generic/registry/store.go, pkg/registry/rest.
"""

import contextlib
import random
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import orjson

from hamicommon.model import Object
from minicluster.apiserver.admission.chain import Admission
from minicluster.apiserver.admission.webhooks import Attempt
from minicluster.apiserver.api import errors
from minicluster.apiserver.api import resources as known
from minicluster.apiserver.api.resources import Resource
from minicluster.apiserver.objects.pods import PodStrategy
from minicluster.apiserver.objects.strategies import (
    IMMUTABLE,
    ImmutableFields,
    KeepsStatus,
    NamespaceStrategy,
    NodeStrategy,
    SecretStrategy,
    Strategy,
    WebhookStrategy,
    drop_empty,
    keep_metadata,
    metadata_problems,
)
from minicluster.apiserver.serve.requests import Target
from minicluster.apiserver.store.storage import Entry, Storage

STRATEGIES: dict[Resource, Strategy] = {
    known.PODS: PodStrategy(),
    known.NODES: NodeStrategy(),
    known.NAMESPACES: NamespaceStrategy(),
    known.SECRETS: SecretStrategy(),
    known.WEBHOOKS: WebhookStrategy(),
    known.RESOURCE_QUOTAS: KeepsStatus(),
    known.PRIORITY_CLASSES: ImmutableFields("value", "preemptionPolicy"),
    known.RUNTIME_CLASSES: ImmutableFields("handler"),
}
GENERIC = Strategy()

SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""The characters of generated names: no vowels, and no letters that look like digits."""
SUFFIX_LENGTH = 5
NAME_ATTEMPTS = 8
VERSION_ON_CREATE = "resourceVersion should not be set on objects to be created"
NO_VERSION = "Invalid value: 0: must be specified for an update"


@contextlib.contextmanager
def _shaped(resource: Resource) -> Iterator[None]:
    """Answer 400 for an error that a field of a wrong type causes."""
    try:
        yield
    except (TypeError, AttributeError, KeyError, ValueError) as error:
        raise errors.bad_request(
            f'{resource.kind} in version "{resource.api_version}" cannot be handled as a {resource.kind}: {error}'
        ) from error


def strategy_of(resource: Resource) -> Strategy:
    """Return the rules of *resource*."""
    return STRATEGIES.get(resource, GENERIC)


def stamp(moment: datetime | None = None) -> str:
    """Return a time in the form of metadata, by default the present."""
    return (moment or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")


def finish(resource: Resource, found: Object, now: str) -> None:
    """Set the fields of a new object that only the server sets: uid, time, generation."""
    metadata = found["metadata"]
    metadata.setdefault("uid", str(uuid.uuid4()))
    metadata.setdefault("creationTimestamp", now)
    if resource.has_generation:
        metadata.setdefault("generation", 1)


class Verbs:
    """The writing verbs on *storage*."""

    def __init__(self, storage: Storage, admission: Admission) -> None:
        self._storage = storage
        self._admission = admission

    def read(self, target: Target) -> Entry:
        """
        Return the object of a target.

        Raises: StatusError 404.
        """
        entry = self._storage.get(target.resource, target.key)
        if entry is None:
            raise errors.not_found(target.resource.qualified, target.name)
        return entry

    async def create(self, target: Target, found: Object, is_dry_run: bool = False) -> Entry:
        """
        Store a new object.

        Raises: StatusError 409 if it exists, 422 if it is invalid, 403 and others from admission.
        """
        metadata, resource = found["metadata"], target.resource
        if metadata.get("resourceVersion"):
            raise errors.plain(VERSION_ON_CREATE)
        for field in ("uid", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink"):
            metadata.pop(field, None)
        metadata["creationTimestamp"] = None
        strategy = strategy_of(resource)
        with _shaped(resource):
            strategy.default(found)
        attempt = Attempt("CREATE", resource, target.namespace, metadata.get("name") or "", "", None, is_dry_run)
        found = await self._admission.mutate(attempt, found, strategy.default)
        metadata = found["metadata"]
        metadata.pop("creationTimestamp", None)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = self._free_name(target, metadata["generateName"])
            strategy.default(found)
        now = stamp()
        finish(resource, found, now)
        drop_empty(found)
        with _shaped(resource):
            strategy.prepare_create(found, now)
            self._check(resource, found, strategy.validate(found))
        key = resource.key(target.namespace, metadata["name"])
        if self._storage.get(resource, key) is not None:
            raise errors.already_exists(resource.qualified, metadata["name"])
        self._admission.book(attempt, found)
        return _unsaved(found) if is_dry_run else self._storage.put(resource, key, found)

    def _free_name(self, target: Target, prefix: str) -> str:
        for _ in range(NAME_ATTEMPTS):
            name = prefix[: 63 - SUFFIX_LENGTH] + "".join(random.choices(SUFFIX_LETTERS, k=SUFFIX_LENGTH))
            if self._storage.get(target.resource, target.resource.key(target.namespace, name)) is None:
                break
        return name

    def _check(self, resource: Resource, found: Object, problems: list[tuple[str, str]]) -> None:
        problems = metadata_problems(resource, found) + problems
        if problems:
            name = found["metadata"].get("name") or found["metadata"].get("generateName") or ""
            kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
            raise errors.invalid(kind, name, problems)

    async def update(
        self, target: Target, change: Callable[[Object], Object], is_dry_run: bool = False, is_patch: bool = False
    ) -> Entry:
        """
        Store the result of *change*, which gets a copy of the present object. Without a difference nothing is written.

        A resourceVersion in the result is a precondition, and so is a uid, which in a patch counts as an attempt to
        change it. Without a resourceVersion, *change* is called again after a concurrent write.

        Raises: StatusError 404, 409, 422, and others from admission.
        """
        resource, strategy = target.resource, strategy_of(target.resource)
        while True:
            entry = self.read(target)
            old = entry.load()
            new = change(entry.load())
            self._check_preconditions(target, new, old, is_patch)
            keep_metadata(new, old)
            drop_empty(new)
            with _shaped(resource):
                strategy.default(new)
                prepare = strategy.prepare_status if target.subresource == "status" else strategy.prepare_update
                prepare(new, old)
            attempt = Attempt("UPDATE", resource, target.namespace, target.name, target.subresource, old, is_dry_run)
            new = await self._admission.mutate(attempt, new, strategy.default)
            with _shaped(resource):
                is_whole = target.subresource != "status"
                self._check(
                    resource, new, strategy.validate(new) + strategy.validate_update(new, old) if is_whole else []
                )
            if self._storage.get(resource, target.key) is not entry:
                continue
            if _same(new, old):
                return entry
            _count_generation(resource, new, old)
            return _unsaved(new) if is_dry_run else self._store(resource, target.key, new)

    def _check_preconditions(self, target: Target, new: Object, old: Object, is_patch: bool) -> None:
        resource, wanted, found = target.resource, new["metadata"], old["metadata"]
        if wanted.get("name", target.name) != target.name:
            raise errors.bad_request(
                f"the name of the object ({wanted['name']}) does not match the name on the URL ({target.name})"
            )
        if wanted.get("uid") and wanted["uid"] != found["uid"]:
            if is_patch:
                problem = f'Invalid value: "{wanted["uid"]}": {IMMUTABLE}'
                raise errors.invalid(resource.kind, target.name, [("metadata.uid", problem)])
            why = errors.uid_mismatch(wanted["uid"], found["uid"])
            raise errors.conflict(resource.qualified, target.name, why)
        if wanted.get("resourceVersion"):
            if wanted["resourceVersion"] != found["resourceVersion"]:
                raise errors.conflict(resource.qualified, target.name, errors.MODIFIED)
        elif resource.needs_version:
            raise errors.invalid(resource.kind, target.name, [("metadata.resourceVersion", NO_VERSION)])
        wanted["name"] = target.name

    def _store(self, resource: Resource, key: str, found: Object) -> Entry:
        """Write an update, or remove a deleted object without finalizers and grace period."""
        metadata = found["metadata"]
        if metadata.get("deletionTimestamp") and not metadata.get("finalizers"):
            is_done = not metadata.get("deletionGracePeriodSeconds")
            if is_done and not (found.get("spec") or {}).get("finalizers"):
                return self._storage.remove(resource, key)
        return self._storage.put(resource, key, found)

    async def delete(self, target: Target, options: Object, is_dry_run: bool = False) -> tuple[Entry, bool]:
        """
        Delete an object, or mark it as deleted. Returns the object, and whether it is gone.

        Raises: StatusError 404, 409 for a failed precondition, and others from admission.
        """
        resource = target.resource
        entry = self.read(target)
        attempt = Attempt("DELETE", resource, target.namespace, target.name, "", entry.load(), is_dry_run)
        await self._admission.mutate(attempt, entry.load(), lambda found: None)
        entry = self.read(target)
        found = entry.load()
        check_delete_preconditions(target, found, options.get("preconditions") or {})
        asked = options.get("gracePeriodSeconds")
        grace = strategy_of(resource).grace_seconds(found, asked)
        holders = found["metadata"].get("finalizers") or (found.get("spec") or {}).get("finalizers")
        if not grace and not holders:
            if is_dry_run:
                return entry, True
            if strategy_of(resource).is_graceful and _mark_deleted(resource, found, 0):
                self._storage.put(resource, target.key, found)
            return self._storage.remove(resource, target.key), True
        if not _mark_deleted(resource, found, grace):
            return entry, False
        if resource is known.NAMESPACES:
            found["status"]["phase"] = "Terminating"
        return (_unsaved(found) if is_dry_run else self._storage.put(resource, target.key, found)), False


def check_delete_preconditions(target: Target, found: Object, preconditions: Object) -> None:
    """
    Compare uid and resourceVersion with those in the options of a deletion.

    Raises: StatusError 409.
    """
    metadata = found["metadata"]
    for field, mismatch in (("uid", errors.uid_mismatch), ("resourceVersion", errors.version_mismatch)):
        wanted = preconditions.get(field)
        if wanted and wanted != metadata[field]:
            raise errors.conflict(target.resource.qualified, target.name, mismatch(wanted, metadata[field]))


def _mark_deleted(resource: Resource, found: Object, grace: int) -> bool:
    """Mark *found* as being deleted, and return whether that changed it. A grace period can only become shorter."""
    metadata = found["metadata"]
    before = metadata.get("deletionGracePeriodSeconds")
    if metadata.get("deletionTimestamp") and (before or 0) <= grace:
        return False
    if metadata.get("deletionTimestamp"):
        marked = datetime.strptime(metadata["deletionTimestamp"], "%Y-%m-%dT%H:%M:%SZ") - timedelta(seconds=before)
    else:
        marked = datetime.now(UTC)
        if resource.has_generation:
            metadata["generation"] = metadata.get("generation", 0) + 1
    metadata["deletionTimestamp"] = stamp(marked + timedelta(seconds=grace))
    metadata["deletionGracePeriodSeconds"] = grace
    return True


def _same(new: Object, old: Object) -> bool:
    """Return whether a write would change only the resourceVersion."""
    if new["metadata"].get("resourceVersion") != old["metadata"]["resourceVersion"]:
        new = {**new, "metadata": {**new["metadata"], "resourceVersion": old["metadata"]["resourceVersion"]}}
    return new == old


def _count_generation(resource: Resource, new: Object, old: Object) -> None:
    if not resource.has_generation:
        return
    fields = (new.keys() | old.keys()) - {"metadata", "status", "kind", "apiVersion"}
    if any(new.get(field) != old.get(field) for field in fields):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _unsaved(found: Object) -> Entry:
    """Return the answer of a dry run."""
    return Entry(0, orjson.dumps(found), {}, {})

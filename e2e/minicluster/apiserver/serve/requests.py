"""
Decode a request: resource, object, options, body.

Owns paths, query parameters and content types. Must never read stored objects.
Source: k8s.io/apiserver/pkg/endpoints/request/requestinfo.go, pkg/endpoints/handlers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import yaml

from hamicommon.model import Object
from minicluster import selection
from minicluster.apiserver.api import errors, patches, protobuf
from minicluster.apiserver.api.resources import BY_PATH, NAMESPACES, Resource
from minicluster.apiserver.store.storage import Entry
from minicluster.apiserver.store.watch import Selects

Query = Mapping[str, str]

BODY_TYPES = ("application/json", "application/yaml", protobuf.MEDIA_TYPE)
PATCH_TYPES = tuple(
    f"application/{form}" for form in ("json-patch+json", "merge-patch+json", "strategic-merge-patch+json")
)
APPLY_TYPES = ("application/apply-patch+yaml", "application/apply-patch+cbor")


@dataclass(frozen=True, slots=True)
class Target:
    """The resource or object at a path."""

    resource: Resource
    namespace: str
    """Empty for all namespaces and for cluster-wide resources."""
    name: str
    """Empty for the collection."""
    subresource: str

    @property
    def key(self) -> str:
        """The storage key of the object."""
        return self.resource.key(self.namespace, self.name)


def target_of(path: str) -> Target:
    """
    Return the target of *path*.

    Raises: StatusError 404 if it is not a path of a resource.
    """
    parts = [part for part in path.split("/") if part]
    if len(parts) >= 3 and parts[:2] == ["api", "v1"]:
        group, version, rest = "", "v1", parts[2:]
    elif len(parts) >= 4 and parts[0] == "apis":
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        raise errors.no_such_path()
    namespace = ""
    if rest[0] == "namespaces" and len(rest) >= 3 and rest[2] not in NAMESPACES.subresources:
        namespace, rest = rest[1], rest[2:]
    resource = BY_PATH.get((group, version, rest[0]))
    if resource is None or len(rest) > 3 or (namespace and not resource.is_namespaced):
        raise errors.no_such_path()
    name, subresource = [*rest[1:], "", ""][:2]
    if subresource and subresource not in resource.subresources:
        raise errors.no_such_path()
    if name and resource.is_namespaced and not namespace:
        raise errors.no_such_path()
    return Target(resource, namespace, name, subresource)


def is_true(query: Query, name: str) -> bool:
    """Return whether a boolean query parameter is true."""
    return query.get(name, "") in {"1", "t", "T", "true", "TRUE", "True"}


def number_of(query: Query, name: str) -> int:
    """
    Return a whole number from a query parameter, or 0 if it is missing.

    Raises: StatusError 400 for other texts.
    """
    text = query.get(name) or "0"
    if not text.isdigit():
        raise errors.bad_request(f'{name}: Invalid value: "{text}": must be a whole number')
    return int(text)


def is_dry_run(query: Query) -> bool:
    """
    Return whether the request is a dry run.

    Raises: StatusError 400 for a value other than `All`.
    """
    found = query.get("dryRun", "")
    if found not in {"", "All"}:
        raise errors.bad_request(f'invalid dry run: dryRun: Unsupported value: "{found}": supported values: "All"')
    return found == "All"


def version_of(query: Query) -> int:
    """
    Return the requested resourceVersion, or 0 for any.

    Raises: StatusError 400 if it is not a number.
    """
    text = query.get("resourceVersion", "") or "0"
    if not text.isdigit():
        raise errors.bad_request(f'Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax')
    return int(text)


def selection_of(target: Target, query: Query) -> Selects | None:
    """
    Return a matcher for namespace, name and selectors of a list or watch, or None for everything.

    Raises: StatusError 400 for a selector that cannot be parsed.
    """
    try:
        labels = selection.label_selector(query.get("labelSelector", ""))
        fields = selection.field_selector(query.get("fieldSelector", ""), target.resource.selectable)
    except selection.SelectorError as error:
        raise errors.bad_request(str(error)) from error
    namespace, name = target.namespace, target.name
    if not (labels or fields or namespace or name):
        return None

    def selects(entry: Entry) -> bool:
        return (
            (not namespace or entry.fields["metadata.namespace"] == namespace)
            and (not name or entry.fields["metadata.name"] == name)
            and (fields is None or fields(entry.fields))
            and (labels is None or labels(entry.labels))
        )

    return selects


def body_of(content: bytes, content_type: str, kind: str) -> Object:
    """
    Return the object of *kind* in a request body. An empty body is an empty object.

    Raises: StatusError 415 for an unknown content type, 400 for a body that is not an object.
    """
    media_type = content_type.split(";", 1)[0].strip()
    if media_type not in {"", *BODY_TYPES}:
        raise errors.unsupported_media_type(media_type, BODY_TYPES)
    if not content:
        return {}
    try:
        if media_type == protobuf.MEDIA_TYPE:
            found = protobuf.decode(content)
        else:
            found = yaml.safe_load(content) if media_type == "application/yaml" else orjson.loads(content)
    except (ValueError, TypeError, yaml.YAMLError) as error:
        raise errors.bad_request(f"error decoding the body: {error}") from error
    if not isinstance(found, dict):
        raise errors.bad_request(
            f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; "
            f"expected an object, found {type(found).__name__}"
        )
    return found


def object_of(content: bytes, content_type: str, target: Target) -> Object:
    """
    Return the body as an object of the target's kind, in the target's namespace.

    Raises: StatusError as `body_of`, and 400 if kind, version, name or namespace differ from the path.
    """
    resource = target.resource
    found = body_of(content, content_type, resource.kind)
    kind, version = found.get("kind") or resource.kind, found.get("apiVersion") or resource.api_version
    if version != resource.api_version:
        raise errors.bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({resource.api_version})"
        )
    if kind != resource.kind:
        raise errors.bad_request(f'{kind} in version "{version}" cannot be handled as a {resource.kind}')
    found["kind"], found["apiVersion"] = kind, version
    metadata = found.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise errors.bad_request("metadata must be an object")
    namespace, name = metadata.get("namespace") or target.namespace, metadata.get("name") or target.name
    if resource.is_namespaced:
        metadata["namespace"] = namespace
        if namespace != target.namespace:
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
    if target.name:
        metadata["name"] = name
        if name != target.name:
            raise errors.bad_request(
                f"the name of the object ({name}) does not match the name on the URL ({target.name})"
            )
    metadata.pop("managedFields", None)
    return found


def patch_of(content: bytes, content_type: str) -> tuple[str, Any]:
    """
    Return the media type and the decoded patch.

    Raises: StatusError 415 for an unknown type (also server-side apply), 400 for invalid JSON.
    """
    media_type = content_type.split(";", 1)[0].strip()
    if media_type not in PATCH_TYPES:
        accepted = (
            f"application/apply is not offered; {PATCH_TYPES[0]}" if media_type in APPLY_TYPES else PATCH_TYPES[0]
        )
        raise errors.unsupported_media_type(media_type, (accepted, *PATCH_TYPES[1:]))
    try:
        return media_type, orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise errors.bad_request(f"error decoding patch: {error}") from error


def patched(found: Object, media_type: str, patch: Any) -> Object:
    """
    Return *found* with *patch* applied.

    Raises: StatusError 400 for an invalid patch, 422 for one that does not fit this object.
    """
    try:
        if media_type == PATCH_TYPES[0]:
            result = patches.json_patch(found, patch)
        elif not isinstance(patch, dict):
            raise errors.bad_request("the patch must be an object")
        else:
            result = patches.merge(found, patch) if media_type == PATCH_TYPES[1] else patches.strategic(found, patch)
    except patches.PatchError as error:
        message = f"the server rejected our request due to an error in our request: {error}"
        raise errors.StatusError(422, "Invalid", message, {}) from error
    if not isinstance(result, dict) or not isinstance(result.get("metadata"), dict):
        raise errors.bad_request("the patched object has no metadata")
    return result

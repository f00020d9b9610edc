"""
Read the Pods that a manifest would create, for a question about them.

Neighbours: the commands of the scheduler and of the client ask.
"""

import contextlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import yaml

from hamicommon.errors import HamiError
from hamicommon.model import Object
from hamicommon.pod.shape import COUNT, COUNT_LIMIT, NEW_POD, check_shape
from hamicommon.wire.errors import DecodeError

VALUES_LIMIT = 1_000_000
"""Values in one manifest, each alias written out."""


class ManifestError(HamiError):
    """A file cannot be read, or is no manifest of Pods."""


def read_text(file: str) -> tuple[str, str]:
    """
    Return the text in *file*, `-` for standard input, and its name for messages.

    Raises:
        ManifestError: it cannot be read, or is not UTF-8.
    """
    name = "standard input" if file == "-" else file
    try:
        return (sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()).decode(), name
    except UnicodeDecodeError as error:
        raise ManifestError(f"{name}: byte {error.start} is not UTF-8") from error
    except OSError as error:
        raise ManifestError(f"{name}: {error.strerror or error}") from error


def documents(text: str, name: str) -> list[Any]:
    """
    Return the documents of a JSON or YAML text as JSON has them; *name* is for messages.

    Raises:
        ManifestError: it is neither, or has what JSON cannot say, or is too large.
    """
    with contextlib.suppress(orjson.JSONDecodeError):
        return [orjson.loads(text)]
    try:
        found = list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise ManifestError(f"{name}: neither JSON nor YAML: {' '.join(str(error).split())}") from error
    left, count = list(found), 0
    while left:  # an alias is the same value, and may have itself in it
        each, count = left.pop(), count + 1
        if count > VALUES_LIMIT:
            raise ManifestError(f"{name}: has more than {VALUES_LIMIT} values, each alias written out")
        left.extend(each.values() if isinstance(each, dict) else each if isinstance(each, list) else ())
    try:
        return list(orjson.loads(orjson.dumps(found)))
    except TypeError as error:
        raise ManifestError(f"{name}: JSON cannot say what it has: {error}") from error


def pods_of(documents: Sequence[Any], source: str) -> list[Object]:
    """
    Return the Pods that *documents* of a manifest create, one for each object; with COUNT for a controller's.

    A controller that would create no Pod has none. A DaemonSet creates one.

    Raises:
        ManifestError: a document is no object, or no number of Pods can be read.
    """
    found: list[Object] = []
    for number, document in enumerate(documents, 1):
        where = source if len(documents) == 1 else f"{source}, document {number}"
        if document is None:
            continue
        if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
            raise ManifestError(f"{where}: is no Kubernetes object: it must have a kind, such as Pod")
        if isinstance(document.get("items"), list):
            found.extend(pods_of(document["items"], where))
        else:
            found.extend(_pod_of(document, where))
    return found


def _pod_of(document: Object, where: str) -> list[Object]:
    """Return the Pod that *document* is or creates, nothing if it creates none."""
    if document["kind"] == "Pod":
        spec = document.get("spec")
        if not isinstance(spec, dict) or not isinstance(spec.get("containers"), list):
            raise ManifestError(f"{where}: Pod without spec.containers")
        try:
            check_shape(document, NEW_POD, "Pod")
        except DecodeError as error:
            raise ManifestError(f"{where}: {error}") from error
        return [document]
    spec = _object(document, "spec")
    spec = _object(_object(spec, "jobTemplate"), "spec") or spec
    template = spec.get("template")
    if not isinstance(template, dict):
        return []
    for one in (document, template):
        if not isinstance(one.get("metadata") or {}, dict):
            raise ManifestError(
                f"{where}: {document['kind']}: metadata is {str(one['metadata'])[:40]!r}; it must be an object"
            )
    named = _object(document, "metadata")
    metadata = {**named, **_object(template, "metadata"), "name": str(named.get("name") or "")}
    count = _count(spec, f"{where}: {document['kind']} {metadata['name']}")
    pods = _pod_of({"kind": "Pod", "metadata": metadata, "spec": template.get("spec")}, where)
    return [{**pod, COUNT: count} for pod in pods if count]


def _object(parent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the object in a field; an empty one if the field has none, as in kinds that create no Pods."""
    found = parent.get(key)
    return found if isinstance(found, dict) else {}


def _count(spec: Mapping[str, Any], where: str) -> int:
    """
    Return how many Pods a controller with *spec* creates at one time.

    >>> _count({"replicas": 3}, ""), _count({"parallelism": 8, "completions": 5}, ""), _count({}, "")
    (3, 5, 1)
    """
    found = {}
    for key in ("replicas", "parallelism", "completions"):
        count = spec.get(key)
        if count is None:
            continue
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= COUNT_LIMIT:
            raise ManifestError(f"{where}: {key} is {str(count)[:40]}; it must be between 0 and {COUNT_LIMIT}")
        found[key] = count
    if "completions" in found:
        return min(found["completions"], found.get("parallelism", 1))
    return found.get("replicas", found.get("parallelism", 1))


def with_namespace(pod: Mapping[str, Any], namespace: str) -> Object:
    """Return *pod*, in *namespace* if it names none."""
    metadata = pod.get("metadata") or {}
    return {**pod, "metadata": {**metadata, "namespace": metadata.get("namespace") or namespace}}

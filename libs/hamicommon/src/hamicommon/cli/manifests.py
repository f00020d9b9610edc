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
from hamicommon.pod.shape import NEW_POD, check_shape
from hamicommon.wire.errors import DecodeError


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
    Return the documents of a JSON or YAML text; *name* is for messages.

    Raises:
        ManifestError: it is neither.
    """
    with contextlib.suppress(orjson.JSONDecodeError):
        return [orjson.loads(text)]
    try:
        return list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise ManifestError(f"{name}: neither JSON nor YAML: {' '.join(str(error).split())}") from error


def pods_of(documents: Sequence[Any], source: str) -> list[Object]:
    """
    Return the Pods that *documents* of a manifest create, one for each object, also for a controller.

    Raises:
        ManifestError: a document is no object, or none of them makes a Pod.
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
    spec = document.get("spec") or {}
    spec = (spec.get("jobTemplate") or {}).get("spec") or spec
    template = spec.get("template") if isinstance(spec, dict) else None
    if not isinstance(template, dict):
        return []
    metadata = {**(document.get("metadata") or {}), **(template.get("metadata") or {})}
    metadata["name"] = str((document.get("metadata") or {}).get("name") or "")
    return _pod_of({"kind": "Pod", "metadata": metadata, "spec": template.get("spec")}, where)


def with_namespace(pod: Mapping[str, Any], namespace: str) -> Object:
    """Return *pod*, in *namespace* if it names none."""
    metadata = pod.get("metadata") or {}
    return {**pod, "metadata": {**metadata, "namespace": metadata.get("namespace") or namespace}}

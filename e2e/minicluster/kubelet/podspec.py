"""
The environment, command, user and id of a Pod's containers, and the objects that they refer to.

Functions of the Pod and of the ConfigMaps and Secrets that it names. Must never read a file or call the API.
Neighbours: `pods` reads the objects that `references` returns, `runtime.volumes` makes the files.
"""

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from hamicommon.model import Object
from minicluster.quantity import parse

Container = dict[str, Any]
"""An element of `spec.containers` or `spec.initContainers`."""
Reference = tuple[str, str]
"""Plural and name of an object in the Pod's namespace: `("configmaps", "settings")`."""
Contents = Mapping[Reference, Mapping[str, bytes] | None]
"""The keys of each referenced object, or None if it does not exist."""

PAUSE = ("sleep", "infinity")
"""The command of a container without command and args, in place of the image's, because there are no images."""

_VARIABLE = re.compile(r"\$(?:\$|\(([^()]*)\))")
_MAP_FIELD = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


class ContainerError(Exception):
    """A container cannot be created. `reason` is the reason in its waiting state."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True)
class User:
    """As whom a container's first process runs."""

    uid: int = 0
    gid: int | None = None
    """None means the group that the image has for the user."""
    may_gain_privileges: bool = True
    """Whether a program can have more rights than the one that executes it, as with set-user-ID."""


def user(pod: Object, container: Container) -> User:
    """
    Return as whom *container* runs. Its own settings win over the Pod's; an image here runs as root.

    Raises: ContainerError if it would be root and must not be.
    Source: pkg/kubelet/kuberuntime/security_context_others.go (`verifyRunAsNonRoot`)
    """
    own = container.get("securityContext") or {}
    found = {
        key: value for key, value in ((pod["spec"].get("securityContext") or {}) | own).items() if value is not None
    }
    uid = found.get("runAsUser")
    if found.get("runAsNonRoot") and not uid:
        metadata = pod["metadata"]
        whose = f'pod: "{metadata["name"]}_{metadata["namespace"]}({metadata["uid"]})", container: {container["name"]}'
        why = "container has runAsNonRoot and image will run as root"
        if uid == 0:
            why = "container's runAsUser breaks non-root policy"
        raise ContainerError("CreateContainerConfigError", f"{why} ({whose})")
    return User(uid or 0, found.get("runAsGroup"), own.get("allowPrivilegeEscalation") is not False)


def container_id(pod_uid: str, name: str, attempt: int) -> str:
    """Return the id of one run of a container: 64 hexadecimal digits, as container runtimes have them."""
    return hashlib.sha256(f"{pod_uid}/{name}/{attempt}".encode()).hexdigest()


def is_sidecar(container: Container) -> bool:
    """Return whether an init container is a sidecar: it has restartPolicy Always."""
    return container.get("restartPolicy") == "Always"


def references(pod: Object) -> set[Reference]:
    """Return the ConfigMaps and Secrets that containers and volumes of *pod* refer to."""
    found: set[Reference] = set()
    for container in [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]:
        for source in container.get("envFrom", ()):
            found.update(_named(source, "configMapRef", "secretRef", "name"))
        for variable in container.get("env", ()):
            found.update(_named(variable.get("valueFrom", {}), "configMapKeyRef", "secretKeyRef", "name"))
    for volume in pod["spec"].get("volumes", ()):
        for source in [volume, *volume.get("projected", {}).get("sources", ())]:
            found.update(_named(source, "configMap", "secret", "name"))
            found.update(_named(source, "configMap", "secret", "secretName"))
    return found


def contents_of(found: Object) -> dict[str, bytes]:
    """Return the data of a ConfigMap or Secret as bytes, by key."""
    if found.get("kind") == "Secret":
        return {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}
    data = {key: value.encode() for key, value in (found.get("data") or {}).items()}
    return data | {key: base64.b64decode(value) for key, value in (found.get("binaryData") or {}).items()}


def environment(
    pod: Object, container: Container, contents: Contents, given: Mapping[str, str], allocatable: Mapping[str, str]
) -> dict[str, str]:
    """
    Return the container's variables: *given* (image and devices), then `envFrom`, then `env`. Later ones win.

    Raises: ContainerError if a referenced object or key is missing.
    """
    found = dict(given)
    for source in container.get("envFrom", ()):
        for key, content in _all_keys(source, contents).items():
            found[source.get("prefix", "") + key] = content.decode()
    own = {name: value for name, value in found.items() if name not in given}
    for variable in container.get("env", ()):
        value: str | None = expand(variable.get("value") or "", own)
        if "valueFrom" in variable:
            value = _value_from(variable["valueFrom"], pod, container, contents, allocatable)
        if value is None:
            continue
        own[variable["name"]] = found[variable["name"]] = value
    return found


def arguments(container: Container, variables: Mapping[str, str]) -> list[str]:
    """Return the argv of *container*, with `$(NAME)` replaced by values of *variables*."""
    given = [*container.get("command", ()), *container.get("args", ())]
    return [expand(argument, variables) for argument in given] or list(PAUSE)


def expand(text: str, variables: Mapping[str, str]) -> str:
    """
    Replace `$(NAME)` in *text*. `$$` is a dollar sign, and a name without a value stays.

    >>> expand("$(A)-$$(A)-$(B)", {"A": "1"})
    '1-$(A)-$(B)'
    """
    return _VARIABLE.sub(
        lambda match: "$" if match.group(1) is None else variables.get(match.group(1), match.group(0)), text
    )


def field(pod: Object, path: str) -> str:
    """
    Return the Pod field at the downward API's *path*.

    Raises: ContainerError for an unknown path.
    """
    metadata, status = pod["metadata"], pod.get("status", {})
    if match := _MAP_FIELD.fullmatch(path):
        return str((metadata.get(match.group(1)) or {}).get(match.group(2), ""))
    if path in {"metadata.labels", "metadata.annotations"}:
        entries = sorted((metadata.get(path.removeprefix("metadata.")) or {}).items())
        return "\n".join(f'{key}="{value}"' for key, value in entries)
    fields = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": pod["spec"].get("nodeName", ""),
        "spec.serviceAccountName": pod["spec"].get("serviceAccountName", "default"),
        **{name: status.get("podIP", "127.0.0.1") for name in ("status.podIP", "status.podIPs")},
        **{name: status.get("hostIP", "127.0.0.1") for name in ("status.hostIP", "status.hostIPs")},
    }
    if path not in fields:
        raise ContainerError("CreateContainerConfigError", f"fieldPath {path!r} is none of {', '.join(sorted(fields))}")
    return str(fields[path])


def resource_field(container: Container, source: Object, allocatable: Mapping[str, str]) -> str:
    """Return the amount of a `resourceFieldRef`, in units of its divisor, rounded up."""
    group, _, name = source["resource"].partition(".")
    amount = container.get("resources", {}).get(group, {}).get(name)
    if amount is None and group == "limits":
        amount = allocatable.get(name)
    divisor = parse(source.get("divisor", "0")) or Fraction(1)
    return str(-(-parse(amount or 0) // divisor))


def containers_by_name(pod: Object) -> dict[str, Container]:
    """Return all containers of *pod*, init containers first."""
    spec = pod["spec"]
    return {container["name"]: container for container in [*spec.get("initContainers", ()), *spec["containers"]]}


def required_key(source: Object, reference: Reference, contents: Contents) -> bytes | None:
    """
    Return the value of a key reference, or None if it is missing and optional.

    Raises: ContainerError if it is missing and required.
    """
    found = contents.get(reference)
    if found is not None and source["key"] in found:
        return found[source["key"]]
    if source.get("optional"):
        return None
    raise (
        _missing(reference)
        if found is None
        else ContainerError(
            "CreateContainerConfigError", f"couldn't find key {source['key']} in {reference[0]} {reference[1]}"
        )
    )


def whole_object(source: Object, reference: Reference, contents: Contents) -> Mapping[str, bytes]:
    """
    Return all keys of a referenced object, or none if it is missing and optional.

    Raises: ContainerError if it is missing and required.
    """
    found = contents.get(reference)
    if found is None and not source.get("optional"):
        raise _missing(reference)
    return found or {}


def _value_from(
    source: Object, pod: Object, container: Container, contents: Contents, allocatable: Mapping[str, str]
) -> str | None:
    if "fieldRef" in source:
        return field(pod, source["fieldRef"]["fieldPath"])
    if "resourceFieldRef" in source:
        of = source["resourceFieldRef"]
        owner = containers_by_name(pod).get(of.get("containerName", container["name"]), container)
        return resource_field(owner, of, allocatable)
    for kind, plural in (("configMapKeyRef", "configmaps"), ("secretKeyRef", "secrets")):
        if kind in source:
            value = required_key(source[kind], (plural, source[kind]["name"]), contents)
            return None if value is None else value.decode()
    raise ContainerError("CreateContainerConfigError", f"valueFrom has no known source: {source}")


def _all_keys(source: Object, contents: Contents) -> Mapping[str, bytes]:
    for kind, plural in (("configMapRef", "configmaps"), ("secretRef", "secrets")):
        if kind in source:
            return whole_object(source[kind], (plural, source[kind]["name"]), contents)
    return {}


def _named(source: Object, config_map: str, secret: str, name: str) -> Iterator[Reference]:
    for kind, plural in ((config_map, "configmaps"), (secret, "secrets")):
        if kind in source and name in source[kind]:
            yield plural, source[kind][name]


def _missing(reference: Reference) -> ContainerError:
    kind, name = reference
    return ContainerError("CreateContainerConfigError", f'{kind.removesuffix("s")} "{name}" not found')

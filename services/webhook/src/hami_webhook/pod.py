"""
A Pod as the API server sent it, read with suspicion, and rewritten without touching what stays the same.

Everything this service reads of a Pod is checked here once, so that decisions meet the right types only. Rewriting
copies the containers that change and shares the rest, which is what keeps the patch minimal.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hamicommon.errors import HamiError

Object = dict[str, Any]


class PodError(HamiError):
    """A Pod has a field of the wrong kind."""

    def __init__(self, place: str, wanted: str, found: object) -> None:
        super().__init__(f"{place}: must be {wanted}, not {_kind(found)}")


@dataclass(slots=True)
class Container:
    """One container while it is being decided on; changes go to copies."""

    name: str
    is_init: bool
    is_sidecar: bool
    """An init container that keeps running beside the others."""
    is_privileged: bool
    limits: Mapping[str, Any]
    requests: Mapping[str, Any]
    env: Sequence[Object]
    _original: Object
    _limits_added: dict[str, Any] = field(default_factory=dict)
    _env_added: list[Object] = field(default_factory=list)

    @property
    def resources(self) -> dict[str, Mapping[str, Any]]:
        """Limits and requests as they are now."""
        return {"limits": self.limits, "requests": self.requests}

    def names_any(self, resource_names: frozenset[str]) -> bool:
        """Return whether it limits or requests any of *resource_names*."""
        return not (resource_names.isdisjoint(self.limits) and resource_names.isdisjoint(self.requests))

    def set_limit(self, name: str, amount: str) -> None:
        """Set `limits[name]`."""
        self._limits_added[name] = amount
        self.limits = {**self.limits, name: amount}

    def set_env(self, name: str, value: str) -> None:
        """
        Append a variable, unless the one that would win already has this value.

        Of several variables of one name the last wins, so appending overrides what the Pod brought.
        """
        last = next((variable for variable in reversed(self.env) if variable.get("name") == name), None)
        if last is not None and last.get("value", "") == value and "valueFrom" not in last:
            return
        variable = {"name": name, "value": value}
        self._env_added.append(variable)
        self.env = [*self.env, variable]

    def rewritten(self) -> Object:
        """Return the container with its changes, the very same object if there are none."""
        result = self._original
        if self._limits_added:
            resources = result.get("resources") or {}
            limits = {**(resources.get("limits") or {}), **self._limits_added}
            result = {**result, "resources": {**resources, "limits": limits}}
        if self._env_added:
            result = {**result, "env": [*(result.get("env") or []), *self._env_added]}
        return result


@dataclass(slots=True)
class Pod:
    """One Pod while it is being decided on."""

    namespace: str
    scheduler_name: str
    node_name: str
    runtime_class_name: str | None
    init_containers: tuple[Container, ...]
    containers: tuple[Container, ...]
    _original: Object
    _spec_changes: dict[str, Any] = field(default_factory=dict)

    def all_containers(self) -> Iterator[Container]:
        """Yield init containers, then the others, in Pod order."""
        yield from self.init_containers
        yield from self.containers

    def set_scheduler_name(self, name: str) -> None:
        """Set `spec.schedulerName`."""
        if name != self.scheduler_name:
            self._spec_changes["schedulerName"] = self.scheduler_name = name

    def set_runtime_class_name(self, name: str) -> None:
        """Set `spec.runtimeClassName`."""
        self._spec_changes["runtimeClassName"] = self.runtime_class_name = name

    def rewritten(self) -> Object:
        """Return the Pod with its changes, the very same object if there are none."""
        spec = {**(self._original.get("spec") or {}), **self._spec_changes}
        changed = bool(self._spec_changes)
        for key, containers in (("initContainers", self.init_containers), ("containers", self.containers)):
            new = [container.rewritten() for container in containers]
            if any(now is not before for now, before in zip(new, spec.get(key) or (), strict=True)):
                spec[key] = new
                changed = True
        return {**self._original, "spec": spec} if changed else self._original


def read_pod(value: object, namespace: str = "") -> Pod:
    """
    Return the Pod in *value*; *namespace* is where it will live, if the caller knows.

    Raises:
        PodError: a field that is read here has the wrong type.
    """
    pod = _mapping(value, "object")
    metadata = _mapping(pod.get("metadata"), "metadata")
    spec = _mapping(pod.get("spec"), "spec")
    runtime_class = spec.get("runtimeClassName")
    return Pod(
        namespace=namespace or _text(metadata.get("namespace"), "metadata.namespace"),
        scheduler_name=_text(spec.get("schedulerName"), "spec.schedulerName"),
        node_name=_text(spec.get("nodeName"), "spec.nodeName"),
        runtime_class_name=None if runtime_class is None else _text(runtime_class, "spec.runtimeClassName"),
        init_containers=_containers(spec.get("initContainers"), "spec.initContainers", is_init=True),
        containers=_containers(spec.get("containers"), "spec.containers", is_init=False),
        _original=pod,
    )


def _containers(value: object, place: str, *, is_init: bool) -> tuple[Container, ...]:
    return tuple(
        _container(item, f"{place}[{index}]", is_init=is_init) for index, item in enumerate(_list(value, place))
    )


def _container(value: object, place: str, *, is_init: bool) -> Container:
    if not isinstance(value, dict):
        raise PodError(place, "an object", value)
    container: Object = value
    resources = _mapping(container.get("resources"), f"{place}.resources")
    security = _mapping(container.get("securityContext"), f"{place}.securityContext")
    privileged = security.get("privileged")
    if privileged is not None and not isinstance(privileged, bool):
        raise PodError(f"{place}.securityContext.privileged", "a boolean", privileged)
    env = _list(container.get("env"), f"{place}.env")
    for index, variable in enumerate(env):
        if not isinstance(variable, dict):
            raise PodError(f"{place}.env[{index}]", "an object", variable)
    return Container(
        name=_text(container.get("name"), f"{place}.name"),
        is_init=is_init,
        is_sidecar=is_init and container.get("restartPolicy") == "Always",
        is_privileged=bool(privileged),
        limits=_mapping(resources.get("limits"), f"{place}.resources.limits"),
        requests=_mapping(resources.get("requests"), f"{place}.resources.requests"),
        env=env,
        _original=container,
    )


def _mapping(value: object, place: str) -> Object:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise PodError(place, "an object", value)
    return value


def _list(value: object, place: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise PodError(place, "a list", value)
    return value


def _text(value: object, place: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise PodError(place, "a string", value)
    return value


_KINDS = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}


def _kind(value: object) -> str:
    return _KINDS.get(type(value), "null")

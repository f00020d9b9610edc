"""
Read a Pod that the API server sent, check its types, and rewrite it.

Every field that this service reads is checked here, so decisions see the right types only. Rewriting copies what
changes and shares the rest, which keeps the patch small.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hamicommon.errors import HamiError
from hamicommon.model import Object
from hamicommon.pod.containers import ContainerKind, init_kind
from hamicommon.pod.moved import Moved, decode_moved, encode_moved, with_moved
from hamicommon.wire import keys
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.quantity import QuantityError, parse_quantity

T = TypeVar("T")


class PodError(HamiError):
    """A field of a Pod cannot be read; the message names it."""


@dataclass(slots=True)
class Container:
    """One container during a decision; changes go to copies."""

    name: str
    kind: ContainerKind
    is_privileged: bool
    resources: dict[str, Mapping[str, Any]]
    """`limits` and `requests`, with the changes so far, and with what an earlier call moved out of the limits."""
    env: Sequence[Object]
    _original: Object
    _added: dict[str, dict[str, str]] = field(default_factory=dict)
    """New amounts, by `limits` and `requests`."""
    _env_added: list[Object] = field(default_factory=list)
    removed_env: tuple[str, ...] = ()
    """The names of the variables that `remove_env` took out."""
    _moved: frozenset[str] = frozenset()
    """The names of the amounts that `move` took out of the resources."""

    @property
    def limits(self) -> Mapping[str, Any]:
        """The container's limits."""
        return self.resources["limits"]

    @property
    def requests(self) -> Mapping[str, Any]:
        """The container's requests."""
        return self.resources["requests"]

    def names_any(self, names: Iterable[str]) -> bool:
        """Return whether it limits or requests any of the resources *names*."""
        return not (self.limits.keys().isdisjoint(names) and self.requests.keys().isdisjoint(names))

    def set_limit(self, name: str, amount: int) -> None:
        """
        Set `limits[name]`, and `requests[name]` if it exists.

        The API server copies a limit to a missing request, and rejects a Pod whose limit and request differ.
        Source: https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#consuming-extended-resources
        """
        self._set("limits", name, amount)
        if name in self.requests:
            self._set("requests", name, amount)

    def set_amount(self, name: str, amount: int) -> None:
        """Set `limits[name]` and `requests[name]`."""
        self._set("limits", name, amount)
        self._set("requests", name, amount)

    def _set(self, part: str, name: str, amount: int) -> None:
        present = self.resources[part]
        if not _means(present.get(name), amount):
            self._added.setdefault(part, {})[name] = str(amount)
            self.resources[part] = {**present, name: str(amount)}

    def move(self, names: Set[str]) -> Mapping[str, str | int]:
        """Take what the container asks for of *names* out of its resources, and return it."""
        asked: dict[str, str | int] = {**self.requests, **self.limits}
        self._moved = frozenset(names & asked.keys())
        return {name: asked[name] for name in sorted(self._moved)}

    def set_env(self, name: str, value: str) -> None:
        """
        Append a variable, unless the last one of this name already has this value.

        The last of several variables of one name wins, so appending overrides the Pod's own.
        """
        last = next((variable for variable in reversed(self.env) if variable.get("name") == name), None)
        if last is not None and last.get("value", "") == value and "valueFrom" not in last:
            return
        variable = {"name": name, "value": value}
        self._env_added.append(variable)
        self.env = [*self.env, variable]

    def remove_env(self, name: str) -> None:
        """Take the Pod's own variables *name* out."""
        left = [variable for variable in self.env if variable.get("name") != name]
        if len(left) < len(self.env):
            self.env = left
            self.removed_env += (name,)

    def rewritten(self) -> Object:
        """Return the container with its changes; the original object if there are none."""
        result = self._original
        if self._added or self._moved:
            resources = dict(result.get("resources") or {})
            for part in ("limits", "requests"):
                if part in resources or part in self._added:
                    amounts = {**(resources.get(part) or {}), **self._added.get(part, {})}
                    resources[part] = {name: amount for name, amount in amounts.items() if name not in self._moved}
            result = {**result, "resources": resources}
        if self._env_added or self.removed_env:
            result = {**result, "env": self.env}
        return result


@dataclass(slots=True)
class Pod:
    """One Pod during a decision."""

    namespace: str
    scheduler_name: str
    node_name: str
    runtime_class_name: str | None
    annotations: Mapping[str, str]
    init_containers: tuple[Container, ...]
    containers: tuple[Container, ...]
    _original: Object
    has_our_scheduler: bool = False
    """Whether it already has the scheduler that admission sets, as every admitted Pod has."""
    removed_annotations: tuple[str, ...] = ()
    """Keys of the original annotations that are removed, in the Pod's order."""
    _spec_changes: dict[str, Any] = field(default_factory=dict)
    _annotations_added: dict[str, str] = field(default_factory=dict)

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

    def set_annotation(self, key: str, value: str) -> None:
        """Set one of `metadata.annotations`."""
        if self.annotations.get(key) != value:
            self._annotations_added[key] = value
            self.annotations = {**self.annotations, key: value}

    def remove_annotations(self, keys: Set[str]) -> None:
        """Remove the original annotations that are among *keys*."""
        found = tuple(key for key in self.annotations if key in keys and key not in self._annotations_added)
        self.removed_annotations += found
        self.annotations = {key: text for key, text in self.annotations.items() if key not in found}

    def move_amounts(self, names: Set[str]) -> None:
        """Move what containers ask for of the resources *names* into an annotation."""
        found = {container.name: container.move(names) for container in self.all_containers()}
        moved = {name: amounts for name, amounts in found.items() if amounts}
        if moved:
            self.set_annotation(keys.DEVICE_AMOUNTS, encode_moved(moved))

    def rewritten(self) -> Object:
        """Return the Pod with its changes; the original object if there are none."""
        result = self._original
        if self._annotations_added or self.removed_annotations:
            metadata = result.get("metadata") or {}
            before = metadata.get("annotations") or {}
            kept = {key: text for key, text in before.items() if key not in self.removed_annotations}
            result = {**result, "metadata": {**metadata, "annotations": {**kept, **self._annotations_added}}}
        spec = {**(self._original.get("spec") or {}), **self._spec_changes}
        changed = bool(self._spec_changes)
        for key, containers in (("initContainers", self.init_containers), ("containers", self.containers)):
            new = [container.rewritten() for container in containers]
            if any(now is not before for now, before in zip(new, spec.get(key) or (), strict=True)):
                spec[key] = new
                changed = True
        return {**result, "spec": spec} if changed else result


def read_pod(value: object, namespace: str = "") -> Pod:
    """
    Return the Pod in *value*; *namespace* overrides the Pod's own unless it is empty.

    Raises:
        PodError: a field that is read here has the wrong type.
    """
    pod = _checked(value, dict, "object")
    metadata = _checked(pod.get("metadata"), dict, "metadata")
    spec = _checked(pod.get("spec"), dict, "spec")
    runtime_class = spec.get("runtimeClassName")
    annotations = _texts(metadata.get("annotations"), "metadata.annotations")
    moved = _moved(annotations)
    return Pod(
        namespace=namespace or _checked(metadata.get("namespace"), str, "metadata.namespace"),
        scheduler_name=_checked(spec.get("schedulerName"), str, "spec.schedulerName"),
        node_name=_checked(spec.get("nodeName"), str, "spec.nodeName"),
        runtime_class_name=None if runtime_class is None else _checked(runtime_class, str, "spec.runtimeClassName"),
        annotations=annotations,
        init_containers=_containers(spec.get("initContainers"), "spec.initContainers", moved, is_init=True),
        containers=_containers(spec.get("containers"), "spec.containers", moved, is_init=False),
        _original=pod,
    )


def _moved(annotations: Mapping[str, str]) -> Moved:
    """Return what an earlier call moved out of limits."""
    text = annotations.get(keys.DEVICE_AMOUNTS)
    if text is None:
        return {}
    try:
        return decode_moved(text)
    except DecodeError as error:
        raise PodError(f"metadata.annotations: {error}; leave it out, the webhook writes it") from error


def _containers(value: object, place: str, moved: Moved, *, is_init: bool) -> tuple[Container, ...]:
    return tuple(
        _container(item, f"{place}[{index}]", moved, is_init=is_init)
        for index, item in enumerate(_checked(value, list, place))
    )


def _container(value: object, place: str, moved: Moved, *, is_init: bool) -> Container:
    if not isinstance(value, dict):
        raise _wrong_type(place, "an object", value)
    container: Object = value
    resources = _checked(container.get("resources"), dict, f"{place}.resources")
    security = _checked(container.get("securityContext"), dict, f"{place}.securityContext")
    is_privileged = _checked(security.get("privileged"), bool, f"{place}.securityContext.privileged")
    env = _checked(container.get("env"), list, f"{place}.env")
    for index, variable in enumerate(env):
        if not isinstance(variable, dict):
            raise _wrong_type(f"{place}.env[{index}]", "an object", variable)
    name = _checked(container.get("name"), str, f"{place}.name")
    parts = {part: _checked(resources.get(part), dict, f"{place}.resources.{part}") for part in ("limits", "requests")}
    return Container(
        name=name,
        kind=init_kind(container) if is_init else ContainerKind.APP,
        is_privileged=is_privileged,
        resources={**parts, "limits": with_moved(parts, moved.get(name))["limits"]},
        env=env,
        _original=container,
    )


def _checked(value: object, kind: type[T], place: str) -> T:
    """Return *value*, which must be of *kind*; an empty one for None."""
    if value is None:
        return kind()
    if not isinstance(value, kind):
        raise _wrong_type(place, _KINDS[kind], value)
    return value


def _wrong_type(place: str, wanted: str, found: object) -> PodError:
    return PodError(f"{place}: must be {wanted}, not {_KINDS.get(type(found), 'null')}")


def _texts(value: object, place: str) -> Mapping[str, str]:
    for key, text in (found := _checked(value, dict, place)).items():
        if not isinstance(text, str):
            raise _wrong_type(f"{place}[{key[:60]}]", "a string", text)
    return found


def _means(text: object, amount: int) -> bool:
    """Return whether *text* is a quantity equal to *amount*, as 1k equals 1000."""
    try:
        return isinstance(text, str | int) and parse_quantity(text) == amount
    except QuantityError:
        return False


_KINDS = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}

"""
The API server's rules for a ResourceSlice, as far as a driver of whole, shared or partitioned devices can break them.

Source: https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/apis/resource/validation/validation.go
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hamicommon.wire.quantity import parse_quantity

DEVICES_MAX, DEVICES_WITH_TAINTS_MAX = 128, 64
ENTRIES_MAX, TEXT_MAX, TAINTS_MAX = 32, 64, 16
COUNTER_SETS_MAX, COUNTERS_MAX = 8, 32
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")
_TAINT = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_SEMVER = re.compile(r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)")


def problems(item: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> list[str]:
    """Return what the API server says against *item*, which replaces *old*; empty if it takes it."""
    spec = item["spec"]
    return [*_spec_problems(spec), *(_changes(spec, old["spec"]) if old is not None else ())]


def _changes(spec: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[str]:
    for name, now, before in (
        ("spec.pool.name", spec["pool"]["name"], old["pool"]["name"]),
        ("spec.driver", spec["driver"], old["driver"]),
        ("spec.nodeName", spec.get("nodeName"), old.get("nodeName")),
    ):
        if now != before:
            yield f"{name}: field is immutable"


def _spec_problems(spec: Mapping[str, Any]) -> Iterator[str]:
    pool, devices = spec["pool"], spec.get("devices") or []
    if not _DOMAIN.fullmatch(spec["driver"]):
        yield f"spec.driver: {spec['driver']!r}"
    if pool["resourceSliceCount"] < 1 or pool["generation"] < 0:
        yield f"spec.pool: {pool}"
    has_few = any(device.get("taints") or device.get("consumesCounters") for device in devices)
    most = DEVICES_WITH_TAINTS_MAX if has_few else DEVICES_MAX
    if len(devices) > most:
        yield f"spec.devices: {len(devices)}, must have at most {most} items"
    sets = spec.get("sharedCounters") or []
    if devices and sets:
        yield "spec: exactly one of `sharedCounters` and `devices` is required"
    if len(sets) > COUNTER_SETS_MAX:
        yield f"spec.sharedCounters: {len(sets)}, must have at most {COUNTER_SETS_MAX} items"
    for found in sets:
        if not _LABEL.fullmatch(found["name"]) or not 1 <= len(found["counters"]) <= COUNTERS_MAX:
            yield f"spec.sharedCounters[{found['name']}]: is no DNS label, or has no or too many counters"
    names = [device["name"] for device in devices]
    if len(set(names)) < len(names):
        yield "spec.devices: duplicate name"
    for device in devices:
        yield from (f"spec.devices[{device['name']}].{problem}" for problem in _device_problems(device))


def _device_problems(device: Mapping[str, Any]) -> Iterator[str]:
    attributes, capacity, taints = device.get("attributes", {}), device.get("capacity", {}), device.get("taints", ())
    if not _LABEL.fullmatch(device["name"]):
        yield "name: is no DNS label"
    if len(attributes) + len(capacity) > ENTRIES_MAX:
        yield f"attributes and capacities must not exceed {ENTRIES_MAX}"
    for name in (*attributes, *capacity):
        domain, _, identifier = name.rpartition("/")
        if not _IDENTIFIER.fullmatch(identifier) or (domain and not _DOMAIN.fullmatch(domain)):
            yield f"{name}: is no qualified name"
    for name, value in attributes.items():
        yield from (f"attributes[{name}]: {problem}" for problem in _attribute_problems(value))
    for name, value in capacity.items():
        yield from (f"capacity[{name}]: {problem}" for problem in _capacity_problems(value, device))
    if len(taints) > TAINTS_MAX or not all(_TAINT.fullmatch(taint["key"]) for taint in taints):
        yield f"taints: {taints}"


def _attribute_problems(value: Mapping[str, Any]) -> Iterator[str]:
    if len(value) != 1:
        yield "exactly one value must be specified"
    if len(value.get("string", "")) > TEXT_MAX:
        yield f"string: may not be longer than {TEXT_MAX}"
    if "version" in value and not _SEMVER.fullmatch(value["version"]):
        yield f"version: {value['version']!r} is no semantic version"


def _capacity_problems(capacity: Mapping[str, Any], device: Mapping[str, Any]) -> Iterator[str]:
    most, policy = parse_quantity(capacity["value"]), capacity.get("requestPolicy")
    if policy is None:
        return
    if not device.get("allowMultipleAllocations"):
        yield "requestPolicy: needs allowMultipleAllocations"
    default = parse_quantity(policy["default"])
    listed = [parse_quantity(value) for value in policy.get("validValues", ())]
    if listed and (default not in listed or listed != sorted(set(listed)) or listed[-1] > most):
        yield f"validValues: {policy}"
    if "validRange" in policy:
        bounds = {name: parse_quantity(value) for name, value in policy["validRange"].items()}
        least, largest, step = bounds["min"], bounds.get("max", most), bounds.get("step")
        if not least <= default <= largest <= most:
            yield f"validRange: {policy}"
        if step is not None and (least + step > most or (default - least) % step or (largest - least) % step):
            yield f"validRange.step: {policy}"

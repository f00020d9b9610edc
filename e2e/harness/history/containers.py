"""
Whether a container was given what its Pod was granted.

Judged for each container that was seen running: its environment cannot change, its limits file could.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hamicommon.model import Device, Share
from hamicommon.pod.amounts import base_uuid
from hamicommon.wire import keys
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.limits_file import decode_limits_file
from harness.history.findings import Rule
from harness.history.grants import MIG, Fault
from harness.history.reading import WHOLE_PERCENT, Pod

MEMORY_LIMIT = "CUDA_DEVICE_MEMORY_LIMIT_"
"""The start of the variable with a device's limit. One without a number is for each device that has none itself."""
CORE_LIMIT = "CUDA_DEVICE_SM_LIMIT"
ORDER = ("HAMI_DEVICE_UUIDS", "NVIDIA_VISIBLE_DEVICES")
"""The variables with the UUIDs of a container's devices, the first that is set counts."""
BARE = "void"
"""NVIDIA_VISIBLE_DEVICES of a container that gets its devices by other means than a variable."""
LIMITS_FILE = "limits"
"""Its name beside a container's region."""


def seen_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return those of a container's variables that a device plugin writes and a history keeps."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(MEMORY_LIMIT) or name == CORE_LIMIT or name in ORDER
    }


def faults(pod: Pod, seen: Mapping[str, Any], devices: Mapping[str, Device]) -> Iterator[Fault]:
    """Yield how the SEEN object *seen* differs from the grant of *pod*; *devices* are those of its Node."""
    name, environment = seen["container"], seen["environment"]
    shares = pod.granted(name)
    if not shares and _has_claims(pod, name):
        return
    if any(_mode(share, devices) == MIG for share in shares):
        yield from _faults_of_instances(pod, name, environment)
        return
    is_bare = not any(variable.startswith(MEMORY_LIMIT) for variable in environment) and _may_be_bare(
        pod, shares, devices
    )
    if not is_bare:
        expected = {f"{MEMORY_LIMIT}{index}": f"{share.memory_mib}m" for index, share in enumerate(shares)}
        found = {key: value for key, value in environment.items() if key.startswith(MEMORY_LIMIT)}
        if shares and CORE_LIMIT in environment:
            expected[CORE_LIMIT], found[CORE_LIMIT] = str(shares[0].core_percent), environment[CORE_LIMIT]
        if found != expected:
            yield Rule.ENVIRONMENT, f"container {name} was granted {expected}, its environment has {found}"
    uuids = ",".join(share.uuid for share in shares)
    order = next((environment[variable] for variable in ORDER if variable in environment), None)
    if shares and order != uuids and not (is_bare and order == BARE):
        yield Rule.ENVIRONMENT, f"container {name} was granted {uuids}, its environment lists {order}"
    if seen["limits"] is not None:
        yield from _faults_of_file(name, shares, seen["limits"])


def _has_claims(pod: Pod, name: str) -> bool:
    """Return whether the container *name* gets devices by ResourceClaims, which this does not judge."""
    return any((found.get("resources") or {}).get("claims") for found in pod.containers if found["name"] == name)


def _mode(share: Share, devices: Mapping[str, Device]) -> str:
    device = devices.get(base_uuid(share.uuid))
    return device.mode if device else ""


def _faults_of_instances(pod: Pod, name: str, environment: Mapping[str, str]) -> Iterator[Fault]:
    """Yield what is wrong with the environment of a container that has MIG instances, which need no limits."""
    index = [container["name"] for container in pod.containers].index(name)
    made = json.loads(pod.annotations.get(keys.MIG_ALLOCATIONS, "[]"))
    expected = ",".join(each.get("migUUID", "") for each in made if each.get("containerIndex", 0) == index)
    found = environment.get("NVIDIA_VISIBLE_DEVICES")
    limits = [variable for variable in environment if variable.startswith(MEMORY_LIMIT)]
    if limits or (expected and found not in {expected, BARE}):
        yield Rule.ENVIRONMENT, f"container {name} was granted {expected}, its environment lists {found} and {limits}"


def _may_be_bare(pod: Pod, shares: Sequence[Share], devices: Mapping[str, Device]) -> bool:
    """Return whether a container may have no library: it has whole devices, or the driver is to limit its memory."""
    return pod.annotations.get(keys.ENFORCEMENT) == keys.ENFORCEMENT_DRIVER or all(
        share.core_percent == WHOLE_PERCENT
        and share.uuid in devices
        and share.memory_mib == devices[share.uuid].memory_mib
        for share in shares
    )


def _faults_of_file(name: str, shares: Sequence[Share], text: str) -> Iterator[Fault]:
    try:
        file = decode_limits_file(text.encode())
    except DecodeError as error:
        yield Rule.LIMITS, f"container {name} has a limits file that cannot be read: {error}"
        return
    expected = {share.uuid: (share.memory_mib << 20, share.core_percent or WHOLE_PERCENT) for share in shares}
    found = {uuid: (limits.memory_bytes, limits.core_percent) for uuid, limits in file.devices.items()}
    if found != expected:
        yield (
            Rule.LIMITS,
            f"container {name} was granted {expected} (bytes, percent by device), its limits file has {found}",
        )

"""
Whether a grant is what its Pod requests.

Judged once, at the first version at which the Pod is bound and has the grant.
"""

from collections.abc import Iterator, Mapping, Sequence

from hamicommon.model import Device, Request, Share
from hamicommon.pod.amounts import base_uuid
from hamicommon.vendors.description import Vendor
from hamicommon.wire.device_lists import type_allowed, uuid_allowed
from harness.history.findings import Rule
from harness.history.reading import Node, Pod

MIG = "mig"
Fault = tuple[Rule, str]
"""A broken rule, and what is wrong."""


def faults(pod: Pod, vendors: Sequence[Vendor], offers: Sequence[Node]) -> Iterator[Fault]:
    """Yield what is wrong with the grant of *pod*; *offers* are the versions of its Node that count."""
    for vendor in vendors:
        if vendor.key not in pod.shares:
            if vendor.key not in pod.texts and any(vendor.key in each for each in pod.requests):
                yield Rule.REQUEST, f"it requests devices of {vendor.key} and was bound without a grant"
            continue
        for container, requests, shares in zip(pod.containers, pod.requests, pod.shares[vendor.key], strict=True):
            for rule, text in _faults_of_container(vendor, pod.annotations, requests.get(vendor.key), shares, offers):
                yield rule, f"container {container['name']} {text}"


def _faults_of_container(
    vendor: Vendor,
    annotations: Mapping[str, str],
    request: Request | None,
    shares: Sequence[Share],
    offers: Sequence[Node],
) -> Iterator[Fault]:
    asked = request.count if request else 0
    if len(shares) != asked:
        yield Rule.REQUEST, f"requests {asked} devices of {vendor.key} and was granted {len(shares)}"
        return
    split = {uuid for node in offers for uuid, device in node.devices.items() if device.mode == MIG}
    whole = [share.uuid for share in shares if base_uuid(share.uuid) not in split]
    if len(set(whole)) < len(whole):
        yield Rule.REQUEST, f"was granted a device twice: {', '.join(whole)}"
    for share in shares:
        assert request is not None
        yield from _faults_of_share(vendor, annotations, request, share, offers)


def _faults_of_share(
    vendor: Vendor, annotations: Mapping[str, str], request: Request, share: Share, offers: Sequence[Node]
) -> Iterator[Fault]:
    uuid = base_uuid(share.uuid)
    found = [node.devices[uuid] for node in offers if uuid in node.devices]
    if vendor.register_key and offers and not found:
        yield Rule.OFFER, f"was granted {uuid}, which Node {offers[-1].name} does not have"
    elif found and not any(device.healthy and uuid not in node.cordoned for device, node in _devices(uuid, offers)):
        yield Rule.OFFER, f"was granted {uuid}, which is unhealthy or cordoned"
    is_exact = vendor.key == "NVIDIA" and not any(device.mode == MIG for device in found)
    wanted = {memory_asked(request, device) for device in found} or {request.memory_mib}
    if share.memory_mib < min(wanted) or (is_exact and found and share.memory_mib not in wanted):
        yield Rule.REQUEST, f"requests {min(wanted)} MiB and was granted {share.memory_mib} MiB of {uuid}"
    if is_exact and share.core_percent != request.held_core_percent:
        yield (
            Rule.REQUEST,
            f"requests {request.held_core_percent} % of compute and was granted {share.core_percent} % of {uuid}",
        )
    if not accepts_uuid(vendor, annotations, uuid):
        yield Rule.REQUEST, f"was granted {uuid}, which annotations of the Pod exclude"
    if found and not any(accepts_type(vendor, annotations, device) for device in found):
        yield Rule.REQUEST, f"was granted {uuid}, a {found[-1].type}, which annotations of the Pod exclude"


def _devices(uuid: str, offers: Sequence[Node]) -> Iterator[tuple[Device, Node]]:
    return ((node.devices[uuid], node) for node in offers if uuid in node.devices)


def memory_asked(request: Request, device: Device) -> int:
    """Return the MiB of *device* that *request* asks for; a percentage is cut to whole MiB."""
    if request.memory_mib or request.memory_percent is None:
        return request.memory_mib
    return device.memory_mib * request.memory_percent // 100


def accepts_uuid(vendor: Vendor, annotations: Mapping[str, str], uuid: str) -> bool:
    """Return whether the lists of devices in *annotations* allow *uuid*."""
    return uuid_allowed(annotations.get(vendor.use_uuid_key), annotations.get(vendor.nouse_uuid_key), uuid)


def accepts_type(vendor: Vendor, annotations: Mapping[str, str], device: Device) -> bool:
    """Return whether the lists of models in *annotations* allow *device*."""
    return type_allowed(annotations.get(vendor.use_type_key), annotations.get(vendor.nouse_type_key), device.type)

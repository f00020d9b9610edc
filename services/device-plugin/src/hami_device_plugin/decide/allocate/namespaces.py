"""
Decide which container has which namespace of MPS.

A namespace has a percentage of the multiprocessors, which only root may change. Its name follows from the container, so
it is found again without a record. In the container its folder is where programs look for MPS without being told.
Neighbours: `adapters.mps` makes namespaces, `serve.namespaces` keeps them.
Source: https://docs.nvidia.com/deploy/mps/appendix-tools-and-interface-reference.html
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256

from hami_device_plugin.decide.allocate.allocation import NO_CORE_LIMIT, Grant, Mount
from hami_device_plugin.decide.allocate.container_limits import (
    NO_LIMIT_PERCENT,
    PIPE_DIRECTORY,
    MpsError,
    thread_percentage,
)
from hami_device_plugin.decide.allocate.pods import sharing_containers
from hami_device_plugin.decide.probe.enforcement import MpsServer
from hamicommon.model import ContainerShares, Share
from hamicommon.pod.reading import Container, Pod
from hamicommon.pod.variables import CORE_POLICY
from hamicommon.vendors.description import Vendor

PIPES_IN_CONTAINER = ("/tmp/nvidia-mps", "/run/nvidia-mps")
"""Where a program looks for MPS if its environment is empty: of any user, and of root in a user namespace."""
_PREFIX = "hami_"
_DIGITS = 40


def namespace_name(pod_uid: str, container: str) -> str:
    """
    Return the name of a container's namespace: at most 64 of a to z, 0 to 9 and _.

    >>> namespace_name("uid", "main")
    'hami_7da7138ace406b845f79851b76edf48c539b439b'
    """
    return _PREFIX + sha256(f"{pod_uid}/{container}".encode()).hexdigest()[:_DIGITS]


def is_ours(namespace: str) -> bool:
    """Return whether *namespace* has a name that `namespace_name` returns."""
    return namespace.startswith(_PREFIX) and len(namespace) == len(_PREFIX) + _DIGITS


def namespace_percent(shares: Sequence[Share], container: Container, *, is_unlimited: bool) -> int:
    """
    Return the percentage of the namespace of *container*; *is_unlimited* on a Node that limits no compute.

    Raises:
        MpsError: its shares differ in compute, and a namespace has one percentage.
    """
    percent = thread_percentage(shares)
    return NO_LIMIT_PERCENT if is_unlimited or container.choices.get(CORE_POLICY) == NO_CORE_LIMIT else percent


def multiprocessors_of(percent: int, total: int) -> int:
    """
    Return how many of *total* multiprocessors MPS gives for *percent*: rounded down, then made even.

    Measured by others, on driver 615: ai-dynamo, "Per-GPU Compute and Memory Limits with MPS".

    >>> [multiprocessors_of(percent, 188) for percent in (1, 25, 50, 100)]
    [2, 46, 94, 188]
    """
    return total if percent >= NO_LIMIT_PERCENT else max(total * percent // 100 // 2 * 2, 2)


def rounding(container: str, percent: int, totals: Mapping[str, int]) -> str:
    """Return what is to be said of devices that give *container* less than *percent*; *totals* are by UUID."""
    given = {uuid: (multiprocessors_of(percent, total), total) for uuid, total in totals.items()}
    less = [
        f"{part} of {total} multiprocessors of device {uuid}, {100 * part / total:.1f} %"
        for uuid, (part, total) in given.items()
        if 100 * part < percent * total
    ]
    return f"container {container} asks for {percent} % and gets {', '.join(less)}: MPS rounds down" if less else ""


def gets_namespace(container: Container, server: MpsServer) -> bool:
    """
    Return whether *container* is a client of *server*; else the library limits its compute.

    Raises:
        MpsError: the Node has MPS alone, and the container may be root, who may change any namespace.
    """
    if container.is_never_root:
        return True
    if server.is_required:
        raise MpsError(
            "MPS limits compute on this Node, and root may change its limits: set allowPrivilegeEscalation: false and "
            "runAsNonRoot: true in the container's securityContext, or hostUsers: false in the Pod's spec"
        )
    return False


def with_namespace(grant: Grant, namespace: str, server: MpsServer) -> Grant:
    """Return *grant* of a container that has *namespace*."""
    pipes = (Mount(folder, server.pipe(namespace), is_read_only=False) for folder in PIPES_IN_CONTAINER)
    return replace(grant, env=grant.env | {PIPE_DIRECTORY: PIPES_IN_CONTAINER[0]}, mounts=(*grant.mounts, *pipes))


def wanted_namespaces(
    pods: Iterable[Pod], node: str, vendor: Vendor, percent: Callable[[Container, ContainerShares], int | None]
) -> Mapping[str, tuple[Pod, str, int]]:
    """
    Return the Pod, container and percentage of each namespace that containers of *pods* on *node* have or will have.

    *percent* returns that of a container, None if it has no namespace.
    """
    found = {}
    for pod, container, shares in sharing_containers(pods, node, vendor):
        part = percent(container, shares) if container.may_run else None
        if part is not None:
            found[namespace_name(pod.uid, container.name)] = (pod, container.name, part)
    return found

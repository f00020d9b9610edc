"""
Decide what a container gets with its MIG instances: the instances themselves, as HAMi does.

The driver limits an instance, so there is no limit, no library and no directory for its usage. A container uses one by
three device files: that of the GPU, and one each for the GPU instance and the compute instance, which the driver calls
capabilities. The driver lists their minor numbers.
Neighbours: `allocate.allocation` is for shares, `nvml.mig` reads an instance's address and the driver's list.
Sources: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/ ("Device Nodes and Capabilities"),
https://github.com/NVIDIA/nvidia-container-toolkit/blob/v1.20.1/internal/nvcaps/nvcaps.go,
https://github.com/NVIDIA/nvidia-container-toolkit/blob/v1.20.1/pkg/nvcdi/namer.go
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hami_device_plugin.decide.allocate.allocation import (
    Grant,
    GrantPolicy,
    device_nodes,
    feature_environment,
    list_environment,
    volume_mounts,
)
from hami_device_plugin.decide.probe.strategy import ENVVAR, VOLUME_MOUNTS
from hamicommon.errors import HamiError


@dataclass(frozen=True, slots=True)
class GrantedInstance:
    """One MIG instance that a container gets."""

    uuid: str
    index: str = ""
    """Its name by numbers, such as 0:1; empty unless the policy lists devices by index."""
    device_files: tuple[str, ...] = ()
    """Those that reach it; empty unless the policy passes device files."""


def needs_address(policy: GrantPolicy) -> bool:
    """Return whether a grant by *policy* has more of an instance than its UUID."""
    is_listed = ENVVAR in policy.list_strategies or VOLUME_MOUNTS in policy.list_strategies
    return (policy.indices is not None and is_listed) or policy.minors is not None


def instance_grant(instances: Sequence[GrantedInstance], policy: GrantPolicy) -> Grant:
    """Return what a container gets with *instances*, of which there is at least one."""
    names = [found.uuid if policy.indices is None else found.index for found in instances]
    return Grant(
        env=feature_environment(policy) | list_environment(names, policy),
        mounts=volume_mounts(names, policy),
        device_nodes=device_nodes([path for found in instances for path in found.device_files], policy),
    )


DIRECTORY = "/dev/nvidia-caps"


class CapabilityError(HamiError):
    """The driver does not say which device files an instance has."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where one instance is."""

    gpu_index: int
    gpu_minor: int
    """N of the GPU's `/dev/nvidiaN`."""
    index: int
    """Of the instance on its GPU."""
    gpu_instance_id: int
    compute_instance_id: int

    def __str__(self) -> str:
        """
        Return the name that NVIDIA's tools take instead of the UUID.

        >>> str(Address(gpu_index=0, gpu_minor=0, index=1, gpu_instance_id=8, compute_instance_id=0))
        '0:1'
        """
        return f"{self.gpu_index}:{self.index}"

    @property
    def capabilities(self) -> tuple[str, str]:
        """The driver's names of its capabilities."""
        gpu_instance = f"gpu{self.gpu_minor}/gi{self.gpu_instance_id}"
        return f"{gpu_instance}/access", f"{gpu_instance}/ci{self.compute_instance_id}/access"


def decode_minors(text: str) -> dict[str, int]:
    """
    Return the minor number of each capability in *text*, the driver's list. Other lines are left out.

    >>> decode_minors("config 1\\ngpu0/gi1/access 12\\nsomething else\\n")
    {'config': 1, 'gpu0/gi1/access': 12}
    """
    rows = (line.split() for line in text.splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdecimal()}


def capability_files(address: Address, minors: Mapping[str, int]) -> dict[str, int]:
    """
    Return the minor number of each of the two capabilities at *address*, by the path of its device file.

    Raises:
        CapabilityError: *minors* lacks one.
    """
    for name in address.capabilities:
        if name not in minors:
            raise CapabilityError(f"MIG instance {address}: the driver lists no capability {name}")
    return {f"{DIRECTORY}/nvidia-cap{minors[name]}": minors[name] for name in address.capabilities}

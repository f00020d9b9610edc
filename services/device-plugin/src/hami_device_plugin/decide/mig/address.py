"""
Where a MIG instance is: the numbers by which NVIDIA's tools name it, and the device files that reach it.

A container uses an instance by three device files: that of the GPU, and one each for the GPU instance and the compute
instance, which the driver calls capabilities. The driver lists their minor numbers.
Neighbours: `nvml.mig` reads the address and the driver's list.
Sources: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/ ("Device Nodes and Capabilities"),
https://github.com/NVIDIA/nvidia-container-toolkit/blob/v1.20.1/internal/nvcaps/nvcaps.go,
https://github.com/NVIDIA/nvidia-container-toolkit/blob/v1.20.1/pkg/nvcdi/namer.go
"""

from collections.abc import Mapping
from dataclasses import dataclass

from hamicommon.errors import HamiError

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

"""
Read what each device is, for the attributes of its ResourceSlice.

Source: https://docs.nvidia.com/deploy/nvml-api/
Source: https://github.com/NVIDIA/go-nvlib/blob/v0.7.2/pkg/nvlib/device/device.go
Source: https://docs.kernel.org/PCI/sysfs-pci.html
"""

from collections.abc import Iterable
from pathlib import Path

import pynvml

from hami_device_plugin.adapters.nvml.devices import kernel_address, optional
from hami_device_plugin.decide.inventory import FoundDevice
from hamicommon.dra.slices import Description
from hamicommon.runtime.host.nvml import OPEN_SECONDS, Nvml, text

_PCI = "bus/pci/devices"


_BRANDS = {
    pynvml.NVML_BRAND_QUADRO: "Quadro",
    pynvml.NVML_BRAND_TESLA: "Tesla",
    pynvml.NVML_BRAND_NVS: "NVS",
    pynvml.NVML_BRAND_GRID: "Grid",
    pynvml.NVML_BRAND_GEFORCE: "GeForce",
    pynvml.NVML_BRAND_TITAN: "Titan",
    pynvml.NVML_BRAND_NVIDIA_VAPPS: "NvidiaVApps",
    pynvml.NVML_BRAND_NVIDIA_VPC: "NvidiaVPC",
    pynvml.NVML_BRAND_NVIDIA_VCS: "NvidiaVCS",
    pynvml.NVML_BRAND_NVIDIA_VWS: "NvidiaVWS",
    pynvml.NVML_BRAND_NVIDIA_CLOUD_GAMING: "NvidiaCloudGaming",
    pynvml.NVML_BRAND_QUADRO_RTX: "QuadroRTX",
    pynvml.NVML_BRAND_NVIDIA_RTX: "NvidiaRTX",
    pynvml.NVML_BRAND_NVIDIA: "Nvidia",
    pynvml.NVML_BRAND_GEFORCE_RTX: "GeForceRTX",
    pynvml.NVML_BRAND_TITAN_RTX: "TitanRTX",
}
_ARCHITECTURES = {
    pynvml.NVML_DEVICE_ARCH_KEPLER: "Kepler",
    pynvml.NVML_DEVICE_ARCH_MAXWELL: "Maxwell",
    pynvml.NVML_DEVICE_ARCH_PASCAL: "Pascal",
    pynvml.NVML_DEVICE_ARCH_VOLTA: "Volta",
    pynvml.NVML_DEVICE_ARCH_TURING: "Turing",
    pynvml.NVML_DEVICE_ARCH_AMPERE: "Ampere",
    pynvml.NVML_DEVICE_ARCH_ADA: "Ada Lovelace",
    pynvml.NVML_DEVICE_ARCH_HOPPER: "Hopper",
    pynvml.NVML_DEVICE_ARCH_BLACKWELL: "Blackwell",
}
"""The names that NVIDIA's DRA driver publishes; CEL expressions compare with them."""


async def describe(nvml: Nvml, found: Iterable[FoundDevice], sys_root: Path = Path("/sys")) -> dict[str, Description]:
    """
    Return what each of the devices *found* is, by UUID; of one that does not answer now, what was found before.

    Raises:
        NvmlError: the driver is gone, or silent.
    """
    return await nvml.call(_describe, tuple(found), sys_root, seconds=OPEN_SECONDS)


def _describe(found: tuple[FoundDevice, ...], sys_root: Path) -> dict[str, Description]:
    driver = text(pynvml.nvmlSystemGetDriverVersion())
    cuda = optional(lambda: _cuda_version(int(pynvml.nvmlSystemGetCudaDriverVersion())), "")
    return {device.uuid: _described(device, driver, cuda, sys_root) for device in found}


def _described(device: FoundDevice, driver: str, cuda: str, sys_root: Path) -> Description:
    try:
        return _description(device, driver, cuda, sys_root)
    except pynvml.NVMLError:
        return Description(device.minor, device.name, driver_version=driver, cuda_driver_version=cuda)


def _description(device: FoundDevice, driver: str, cuda: str, sys_root: Path) -> Description:
    handle = pynvml.nvmlDeviceGetHandleByUUID(device.uuid)
    major, minor = optional(lambda: tuple(pynvml.nvmlDeviceGetCudaComputeCapability(handle)), ("", ""))
    bus_id = kernel_address(optional(lambda: text(pynvml.nvmlDeviceGetPciInfo(handle).busId), ""))
    return Description(
        minor=device.minor,
        product_name=device.name,
        brand=_BRANDS.get(optional(lambda: int(pynvml.nvmlDeviceGetBrand(handle)), -1), ""),
        architecture=_ARCHITECTURES.get(optional(lambda: int(pynvml.nvmlDeviceGetArchitecture(handle)), -1), ""),
        compute_capability=f"{major}.{minor}" if major else "",
        driver_version=driver,
        cuda_driver_version=cuda,
        pci_bus_id=bus_id,
        pcie_root=_root(sys_root, bus_id) if bus_id else "",
    )


def _cuda_version(number: int) -> str:
    """
    Return CUDA's number as people write it.

    >>> _cuda_version(12040)
    '12.4'
    """
    return f"{number // 1000}.{number % 1000 // 10}"


def _root(sys_root: Path, address: str) -> str:
    """Return the root of the PCI tree that a device is in, such as `pci0000:00`; empty if the kernel does not say."""
    try:
        place = (sys_root / _PCI / address).resolve(strict=True)
    except OSError:
        return ""
    return next((part for part in place.parts if part.startswith("pci") and ":" in part), "")

"""
Recognise machines on which devices cannot be shared here.

Neighbours: `main` reads the names.
Source: https://github.com/NVIDIA/go-nvlib/blob/v0.7.4/pkg/nvlib/info/property-extractor.go
"""


def unsupported_platform(kernel_release: str, soc_family: str) -> str | None:
    """
    Return why this machine is not supported; None if it may be.

    *kernel_release* is what `uname -r` prints, *soc_family* the content of /sys/devices/soc0/family, empty without it.

    >>> unsupported_platform("6.1.0-13-amd64", "") is None
    True
    >>> unsupported_platform("5.15.148-tegra", "Tegra")
    "a Tegra system has no device that can be shared: its GPU has no NVML; use NVIDIA's device plugin"
    """
    release = kernel_release.lower()
    if "microsoft" in release and "wsl" in release:
        return "WSL shows all devices as one, /dev/dxg, which cannot be shared; use NVIDIA's device plugin"
    if "tegra" in soc_family.lower() or release.endswith("-tegra"):
        return "a Tegra system has no device that can be shared: its GPU has no NVML; use NVIDIA's device plugin"
    return None

"""
A container whose launches are limited, in virtual time.
"""

import pytest
from containers import SANITIZER, Container


@pytest.fixture
def limited(container: Container) -> Container:
    """A container in virtual time with a share of 50 % of each device, while launches are limited."""
    libraries = [SANITIZER, *(str(container.build / name) for name in ("libfake_time.so", "libvgpu.so"))]
    container.environment |= {
        "FAKE_TIME": "virtual",
        "LD_PRELOAD": ":".join(path for path in libraries if path),
        "CUDA_DEVICE_SM_LIMIT": "50",
        "GPU_CORE_UTILIZATION_POLICY": "force",
    }
    return container

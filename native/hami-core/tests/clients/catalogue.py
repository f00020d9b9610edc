"""
The programs of others that run over the fake driver, with the packages that they need.

Owns the versions: the newest when a row was written, and one of two years before. A program that needs NVIDIA's CUDA
runtime (PyTorch, Triton, CuPy, JAX, NCCL) is not here: `page` says why.
"""

from collections.abc import Sequence
from dataclasses import dataclass

LIMIT_MIB, LIMIT_PERCENT = 1000, 50
REFUSED = "CUDA_ERROR_OUT_OF_MEMORY"
"""What a client's error says when an allocation passes the limit."""


@dataclass(frozen=True)
class Client:
    """One program in one version."""

    name: str
    version: str
    program: str
    """Its file in `programs`."""
    packages: Sequence[str] = ()
    """What it imports beside the standard library, as `name==version`."""
    library: str = "libcuda.so.1"
    """The library of the driver that it uses."""
    is_small: bool = True
    """Whether its packages are small enough for every run of the tests."""
    cuda: int = 13050
    """The CUDA version of the driver."""


_ML = "nvidia-ml-py==13.615.71"
_ML_BEFORE = "nvidia-ml-py==12.560.30"
_BINDINGS = ("cuda-bindings==13.5.0", "cuda-pathfinder==1.9.1")
_COMPILER = (
    *("nvidia-cuda-nvrtc==13.5.37", "nvidia-nvjitlink==13.5.37", "nvidia-nvvm==13.5.37"),
    *("nvidia-cuda-runtime==13.5.37", "nvidia-cuda-cccl==13.3.5.0.6"),
)
_NUMPY = "numpy==2.4.6"
_NVML = "libnvidia-ml.so.1"

CLIENTS = (
    Client("cuda-bindings", "13.5.0", "bindings.py", _BINDINGS),
    Client("cuda-bindings", "12.8.0", "bindings.py", ("cuda-bindings==12.8.0",)),
    Client("cuda-core", "1.2.2", "core.py", ("cuda-core==1.2.2", *_BINDINGS, *_COMPILER, _NUMPY), is_small=False),
    # As it began, with another interface. Of cuda-python, which has no code any more, it asks the version.
    Client(
        "cuda-core",
        "0.1.1",
        "core_experimental.py",
        (
            *("cuda-core==0.1.1", "cuda-python==12.8.0", "cuda-bindings==12.8.0", "numpy==2.0.2"),
            "nvidia-cuda-nvrtc-cu12==12.6.77",
        ),
        is_small=False,
        cuda=12080,
    ),
    Client(
        "numba-cuda",
        "0.30.4",
        "numba_arrays.py",
        (
            *("numba-cuda==0.30.4", "numba==0.68.1", "llvmlite==0.50.0", _NUMPY, "packaging==26.4"),
            *("cuda-core==1.2.2", *_BINDINGS, *_COMPILER),
        ),
        is_small=False,
    ),
    # With a driver of CUDA 13 it calls cuCtxGetDevice_v2, which has another parameter.
    Client(
        "numba",
        "0.60.0",
        "numba_arrays.py",
        (
            *("numba==0.60.0", "llvmlite==0.43.0", "numpy==2.0.2"),
            *("nvidia-cuda-nvcc-cu12==12.6.77", "nvidia-cuda-runtime-cu12==12.6.77"),
        ),
        is_small=False,
        cuda=12080,
    ),
    Client("nvidia-ml-py", "13.615.71", "ml.py", (_ML,), _NVML),
    Client("nvidia-ml-py", "12.560.30", "ml.py", (_ML_BEFORE,), _NVML),
    Client("nvitop", "1.7.2", "nvitop_devices.py", ("nvitop==1.7.2", _ML, "psutil==7.2.2"), _NVML),
    Client("nvitop", "1.3.2", "nvitop_devices.py", ("nvitop==1.3.2", _ML_BEFORE, "psutil==6.1.0"), _NVML),
    Client(
        "gpustat",
        "1.1.1",
        "gpustat_query.py",
        ("gpustat==1.1.1", _ML, "psutil==7.2.2", "blessed==1.52.0", "wcwidth==0.9.4", "jinxed==2.1.0"),
        _NVML,
    ),
)

"""
NVIDIA's cuda-core as it began.
"""

import pkgutil

import cuda

# Each package has a folder here, and cuda-bindings of that time has all of `cuda` to itself.
cuda.__path__ = pkgutil.extend_path(cuda.__path__, cuda.__name__)

from core_steps import SOURCE, report  # noqa: E402
from cuda.core.experimental import Device, LaunchConfig, Program, launch  # noqa: E402

report(
    Device(0),
    lambda: Program(SOURCE, "c++").compile("cubin", options=("-arch=sm_80",)).get_kernel("add"),
    lambda stream, kernel, argument: launch(kernel, LaunchConfig(grid=1, block=32, stream=stream), argument),
)

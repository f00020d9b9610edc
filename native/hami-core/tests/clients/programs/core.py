"""
NVIDIA's cuda-core.
"""

from core_steps import SOURCE, report
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

report(
    Device(0),
    lambda: Program(SOURCE, code_type="c++", options=ProgramOptions(arch="sm_80")).compile("cubin").get_kernel("add"),
    lambda stream, kernel, argument: launch(stream, LaunchConfig(grid=1, block=32), kernel, argument),
)

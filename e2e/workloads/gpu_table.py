"""
Print a table like that of `nvidia-smi`: memory and load of each device, and its processes.

Reads NVML only. In a container with a share, it shows the totals of the share and the processes of the container.
"""

import sys
from collections.abc import Iterator
from pathlib import PurePath

import pynvml

MIB = 1 << 20
WIDTH = 74
"""Fits a terminal of 80 columns, with a margin."""
RULE = f"+{'-' * WIDTH}+"
HEAVY = f"|{'=' * WIDTH}|"


def line(text: str) -> str:
    """Return one row of the table."""
    return f"| {text:<{WIDTH - 2}.{WIDTH - 2}} |"


def device_rows(index: int, device: object) -> Iterator[str]:
    """Yield the two rows of one device."""
    memory = pynvml.nvmlDeviceGetMemoryInfo(device)
    load = pynvml.nvmlDeviceGetUtilizationRates(device)
    used = f"{memory.used // MIB} MiB / {memory.total // MIB} MiB"
    watts = pynvml.nvmlDeviceGetPowerUsage(device) // 1000
    celsius = pynvml.nvmlDeviceGetTemperature(device, pynvml.NVML_TEMPERATURE_GPU)
    bus = pynvml.nvmlDeviceGetPciInfo(device).busId
    yield line(f"{index:>3}  {pynvml.nvmlDeviceGetName(device):<24.24} {bus:<16} {used:>25}")
    draw = f"{celsius} C  {watts} W"
    yield line(f"     {pynvml.nvmlDeviceGetUUID(device):<41} {draw:<12} {f'{load.gpu} % busy':>12}")


def process_rows(index: int, device: object) -> Iterator[str]:
    """Yield a row for each process that NVML shows on a device."""
    for process in pynvml.nvmlDeviceGetComputeRunningProcesses(device):
        try:
            name = PurePath(pynvml.nvmlSystemGetProcessName(process.pid)).name
        except pynvml.NVMLError:
            name = "-"
        used = f"{process.usedGpuMemory // MIB} MiB"
        yield line(f"{index:>3} {process.pid:>10}  {name:<40.40} {used:>15}")


def table() -> Iterator[str]:
    """Yield the lines of the table. NVML must be initialised."""
    versions = f"Driver {pynvml.nvmlSystemGetDriverVersion()}"
    cuda = pynvml.nvmlSystemGetCudaDriverVersion_v2()
    devices = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    yield RULE
    yield line(f"{versions:<60} {f'CUDA {cuda // 1000}.{cuda % 1000 // 10}':>11}")
    yield RULE
    yield line(f"GPU  {'Name / UUID':<24} {'Bus-Id':<16} {'Memory':>25}")
    yield HEAVY
    for index, device in enumerate(devices):
        yield from device_rows(index, device)
        yield RULE
    yield line(f"GPU {'PID':>10}  {'Process':<40} {'Memory':>15}")
    yield HEAVY
    rows = [row for index, device in enumerate(devices) for row in process_rows(index, device)]
    yield from rows or [line("no process")]
    yield RULE


def render() -> str:
    """Initialise NVML, and return the table as text."""
    pynvml.nvmlInit()
    try:
        return "\n".join(table())
    finally:
        pynvml.nvmlShutdown()


def main() -> int:
    """Print the table, or one line that says that there is no NVML."""
    try:
        print(render(), flush=True)
    except pynvml.NVMLError as error:
        print(f"gpu_table: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""
Allocate device memory and keep it, with or without load. The Pods of the demo and of the tests run this.

Prints `allocated N MiB of M MiB visible` once it has allocated, and each failure: `cuMemAlloc(N MiB):
CUDA_ERROR_OUT_OF_MEMORY`. With `--all-devices` it prints before, for each device, `GPU-... has M MiB`. With `--report`
it prints `busy N %` each second, the part of the second in which kernels ran. Ends with SIGTERM, or after `--seconds`.
"""

import argparse
import signal
import sys
import time
from types import FrameType

from workloads.cuda import CudaError, Driver
from workloads.gpu_table import render

IDLE_SECONDS = 0.05
SLICE_SECONDS = 0.02
REPORT_SECONDS = 1.0


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(prog="gpu-hold", description="Allocate device memory and keep it.")
    parser.add_argument("--mib", type=int, required=True, help="memory to allocate and keep, on each device used")
    parser.add_argument("--then-mib", type=int, help="memory to allocate afterwards; a failure is only printed")
    parser.add_argument("--all-devices", action="store_true", help="use every visible device instead of the first")
    parser.add_argument("--table", action="store_true", help="print a table like nvidia-smi's after the allocation")
    parser.add_argument("--seconds", type=float, help="end after this time (default: never)")
    parser.add_argument("--busy", type=int, default=0, metavar="PERCENT", help="part of the time in which kernels run")
    parser.add_argument("--kernel-us", type=int, default=1000, metavar="US", help="duration of each kernel of --busy")
    parser.add_argument("--report", action="store_true", help="print each second the part of it in which kernels ran")
    parser.add_argument("--exit-on-refusal", action="store_true", help="exit with 2 if an allocation fails")
    return parser.parse_args(argv)


def allocate(driver: Driver, mib: int) -> bool:
    """Allocate *mib* MiB, and return whether it succeeded. A failure is printed."""
    try:
        driver.allocate(mib)
    except CudaError as error:
        print(error, flush=True)
        return False
    return True


def keep(driver: Driver, options: argparse.Namespace) -> None:
    """Wait until it is time to end, and run kernels for the requested part of the time."""
    end = time.monotonic() + options.seconds if options.seconds is not None else float("inf")
    kernel = driver.kernel(f"busy_{options.kernel_us}") if options.busy else None
    reported, launches = time.monotonic(), 0
    while time.monotonic() < end:
        if kernel is None:
            time.sleep(min(IDLE_SECONDS, max(0.0, end - time.monotonic())))
            continue
        slice_end = time.monotonic() + SLICE_SECONDS
        for _ in range(max(1, round(SLICE_SECONDS * 1e6 * options.busy / 100 / options.kernel_us))):
            driver.launch(kernel)
            launches += 1
        time.sleep(max(0.0, slice_end - time.monotonic()))
        elapsed_us = (time.monotonic() - reported) * 1e6
        if options.report and elapsed_us >= REPORT_SECONDS * 1e6:
            print(f"busy {100 * launches * options.kernel_us / elapsed_us:.1f} %", flush=True)
            reported, launches = time.monotonic(), 0


def end_on_signal(_number: int, _frame: FrameType | None) -> None:
    """Exit regularly, so that the driver and the region see this process end."""
    sys.exit(0)


def main(argv: list[str] | None = None) -> int:
    """Run until the end. Returns 1 if there is no device, 2 for a failure with `--exit-on-refusal`."""
    options = arguments(argv)
    signal.signal(signal.SIGTERM, end_on_signal)
    try:
        driver = Driver()
        ordinals = range(driver.device_count() if options.all_devices else 1)
        agreed = []
        for ordinal in ordinals:
            driver.use(ordinal)
            if options.all_devices:
                print(f"{driver.uuid(ordinal)} has {driver.total_mib()} MiB", flush=True)
            agreed.append(allocate(driver, options.mib))
    except (CudaError, OSError) as error:
        print(f"gpu-hold: {error}", file=sys.stderr, flush=True)
        return 1
    if options.table:
        print(render(), flush=True)
    if all(agreed):
        print(f"allocated {options.mib} MiB of {driver.total_mib()} MiB visible", flush=True)
    if options.then_mib is not None and allocate(driver, options.then_mib):
        print(f"allocated {options.then_mib} MiB more", flush=True)
        agreed.append(True)
    elif options.then_mib is not None:
        agreed.append(False)
    if options.exit_on_refusal and not all(agreed):
        return 2
    keep(driver, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())

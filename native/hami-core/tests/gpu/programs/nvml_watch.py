"""
NVML's view of the first device from outside any container: its mean use since the last line, and its memory now.

Prints a line of JSON at its start, and one for each line of input.
"""

import json
import select
import sys

import pynvml

PERIOD_SECONDS = 0.1


def main() -> None:
    """Watch and report."""
    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    percents = [0]
    while True:
        used_mib = pynvml.nvmlDeviceGetMemoryInfo(device).used >> 20
        sys.stdout.write(json.dumps({"percent": sum(percents) / len(percents), "used_mib": used_mib}) + "\n")
        sys.stdout.flush()
        percents = []
        while not percents or not select.select([sys.stdin], [], [], PERIOD_SECONDS)[0]:
            percents.append(pynvml.nvmlDeviceGetUtilizationRates(device).gpu)
        if not sys.stdin.readline():
            break


if __name__ == "__main__":
    main()

"""
What NVML says of the first device from outside of any container: its mean use since it was asked last, and memory now.

Prints a line of JSON when it has begun, and one for each line that comes.
"""

import json
import select
import sys

import pynvml

PERIOD_SECONDS = 0.1


def main() -> None:
    """Watch and tell."""
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

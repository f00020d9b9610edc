"""
What NVML says of the first device from outside of any container, until a line comes: its mean use, and memory now.

Prints a line of JSON at once, so that whoever waits knows it has begun, and one at the end.
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
    percents = []
    say(used_mib=pynvml.nvmlDeviceGetMemoryInfo(device).used >> 20)
    while not select.select([sys.stdin], [], [], PERIOD_SECONDS)[0]:
        percents.append(pynvml.nvmlDeviceGetUtilizationRates(device).gpu)
    mean = sum(percents) / max(len(percents), 1)
    say(percent=mean, used_mib=pynvml.nvmlDeviceGetMemoryInfo(device).used >> 20)


def say(**told: float) -> None:
    """Print a line of JSON."""
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

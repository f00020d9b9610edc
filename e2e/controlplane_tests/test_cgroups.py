"""Control groups divide busy processors by weight."""

import os
import subprocess
import sys
import time

import pytest

from controlplane.machines import cgroups

GROUP = "hami-weighed"
SPIN = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
print(flush=True)
while True:
    pass
"""


@pytest.mark.usefixtures("able_machine")
def test_larger_request_gets_more_of_a_busy_processor() -> None:
    """The ratio is nine to one. Other processes on the processor slow both down alike."""
    used_seconds = {}
    spinning = {}
    try:
        for cpu_millicores in (900, 100):
            spinning[cpu_millicores] = subprocess.Popen([sys.executable, "-c", SPIN], stdout=subprocess.PIPE)
            cgroups.weigh(f"{GROUP}/{cpu_millicores}", cpu_millicores, spinning[cpu_millicores].pid)
        for process in spinning.values():
            assert process.stdout
            process.stdout.readline()
        time.sleep(2)
    finally:
        for cpu_millicores, process in spinning.items():
            process.kill()
            _, _, usage = os.wait4(process.pid, 0)
            process.returncode = 0
            used_seconds[cpu_millicores] = usage.ru_utime
        cgroups.remove(GROUP)
    assert used_seconds[900] > 3 * used_seconds[100]

"""
gpustat: the figures that it prints.
"""

import gpustat
from steps import end, limited, say

for index, gpu in enumerate(gpustat.new_query().gpus):
    say("name", gpu.name)
    limited(f"memory of device {index} in total, MiB", gpu.memory_total)
    say("memory in use, MiB", gpu.memory_used)
    say("use, %", gpu.utilization)
    say("processes", len(gpu.processes))
end()

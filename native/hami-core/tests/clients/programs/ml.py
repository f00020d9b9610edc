"""
NVIDIA's bindings of NVML: what a device is, and what is used of it.
"""

import pynvml
from steps import MIB, end, limited, say

pynvml.nvmlInit()
say("driver", str(pynvml.nvmlSystemGetDriverVersion()))
say("devices", pynvml.nvmlDeviceGetCount())
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
say("name", str(pynvml.nvmlDeviceGetName(handle)))
say("UUID", str(pynvml.nvmlDeviceGetUUID(handle)))
limited("memory in total, MiB", pynvml.nvmlDeviceGetMemoryInfo(handle).total // MIB)
say("memory in use, MiB", pynvml.nvmlDeviceGetMemoryInfo(handle).used // MIB)
say("processes", len(pynvml.nvmlDeviceGetComputeRunningProcesses(handle)))
say("use, %", pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
say("temperature", pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))
end()

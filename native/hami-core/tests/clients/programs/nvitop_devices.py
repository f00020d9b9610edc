"""
nvitop: its view of every device.
"""

from nvitop import Device
from steps import MIB, end, limited, say

for index, device in enumerate(Device.all()):
    say("name", device.name())
    limited(f"memory of device {index} in total, MiB", device.memory_total() // MIB)
    say("memory in use, MiB", device.memory_used() // MIB)
    say("processes", len(device.processes()))
    say("temperature", device.temperature())
end()

"""
Use the machine that a service runs on, whatever its files and its driver do.

`atomic_file` writes files, `removal` deletes what containers left, `unpreloaded` records who has no library, and
`control_groups` finds the groups of containers.
`worker` does work that may hang, and `nvml` is the driver's library, the only module here with pynvml.
May import `hamicommon.errors` and `hamicommon.pod`. Must never trust a file that a container can write, or import
another room.
"""

"""
Decide which container a process on a device belongs to.

`control_groups` tells the container of a process, `owners` is what its Pod says.
May import the rest of `decide` and `hamicommon`. Must never take from a region what a container may do.
"""

"""
Decide which processes use a device otherwise than their container was granted.

The driver says which processes use a device and how much memory they have. `hamicommon.pod.control_groups` tells the
container of a process, `owners` is what its Pod says, `findings` compares, `group_use` does so by control group, and
`confirmation` waits until a finding has lasted, also before an eviction.
May import the rest of `decide` and `hamicommon`. Must never take from a region what a container may do.
"""

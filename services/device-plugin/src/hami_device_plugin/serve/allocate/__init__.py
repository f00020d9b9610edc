"""
Answer the kubelet when it starts a container.

`calls` takes the calls, and has them answered by `identity`, or by `lock` where the Node needs it. `preparation` writes
what a container gets. `last_line` refuses a start that would take more than a device has. `instance_resource` serves
MIG instances that the kubelet alone counts. `served_node` is what they answer by, `kubelet_records` what the kubelet
has recorded. `premade_directories` makes the directories of containers before the kubelet calls, and `batch` lets many
starts share their work.
May import `probe` and `mig`. Must never decide which share a container gets: its Pod says so.
"""

"""
Serve a Node by dynamic resource allocation: shares are results of ResourceClaims, which kube-scheduler allocates.

`driver` is the kubelet's side of the Node, `claims` prepares and unprepares claims, `tokens` those
of Pods that ask by resources, `slices` offers the devices.
What a share is, and how the host is prepared for it, is the same as for Pods with HAMi's annotation.
May import `allocate`.
"""

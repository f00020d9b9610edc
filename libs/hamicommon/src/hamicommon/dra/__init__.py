"""
Dynamic resource allocation: how devices are offered in ResourceSlices, and what ResourceClaims were given of them.

Owns the names of driver, devices, attributes and capacities, which are those of HAMi's DRA driver. `slices` writes
and reads ResourceSlices, `partitions` writes those of MIG instances, `tokens` those for Pods that ask by resources,
`claims` reads ResourceClaims, as objects of `resource.k8s.io/v1`. `grants` has what was prepared. Pure, and knows no
service.
Source: https://github.com/Project-HAMi/k8s-dra-driver/blob/main/cmd/hami-kubelet-plugin/hami_core.go
Source: https://github.com/kubernetes/api/blob/v0.37.2/resource/v1/types.go
"""

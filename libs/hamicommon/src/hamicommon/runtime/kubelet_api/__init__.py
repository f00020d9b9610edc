"""
The messages and stubs of the kubelet's DevicePlugin v1beta1 and PodResources v1 APIs.

Generated into `_proto` from the .proto files beside this one by `tox -e protos`.
"""

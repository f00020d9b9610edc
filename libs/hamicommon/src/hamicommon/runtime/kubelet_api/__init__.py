"""
The messages and stubs of the kubelet's DevicePlugin v1beta1 and PodResources v1 APIs.

`tox -e protos` generates `_proto` from the .proto files beside this one. It must never be edited. Only adapters of the
kubelet import it.
"""

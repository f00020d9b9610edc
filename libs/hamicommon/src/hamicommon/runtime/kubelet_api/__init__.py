"""
The messages and stubs of the kubelet's APIs: DevicePlugin v1beta1, PodResources v1, and for dynamic resource allocation
plugin registration v1, DRAPlugin v1 and DRAResourceHealth v1.

`tox -e protos` generates `_proto` from the .proto files beside this one. It must never be edited. Only adapters of the
kubelet import it.
"""

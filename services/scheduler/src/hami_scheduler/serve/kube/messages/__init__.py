"""
The messages of a watch of Pods in Kubernetes' protobuf encoding.

Generated into `_proto` from the .proto file beside this one by `tox -e protos`.
"""

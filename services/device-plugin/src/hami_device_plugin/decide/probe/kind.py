"""
The kinds of Nodes: how devices reach the kubelet. A Node is of one kind, so that each device has one bookkeeper.
"""

PLUGIN, DRA = "plugin", "dra"
"""By the DevicePlugin API, or by dynamic resource allocation."""
KINDS = (PLUGIN, DRA)

"""
What a Pod was granted on this Node.
"""

import pytest
from device_plugin_builders import VENDOR, a_pod

from hami_device_plugin.decide.allocate.pods import granted_shares
from hamicommon.errors import HamiError


def test_allocation_for_another_node_is_not_believed() -> None:
    """The annotation names a Node that the Pod did not get to."""
    pod = a_pod({"hami.io/vgpu-node": "n2", VENDOR.allocated_key: "GPU-a,NVIDIA,1,1:;"})

    with pytest.raises(HamiError, match="is 'n2', but it runs on Node 'n1'"):
        granted_shares(pod, "n1", VENDOR)

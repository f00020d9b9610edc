"""
What is written on a Pod once its containers have their devices.
"""

from device_plugin_builders import VENDOR, a_pod

from hami_device_plugin.decide.allocate.pods import confirmation
from hamicommon.pod.reading import read_pod


def test_confirmed_pod_is_not_written_again() -> None:
    """Phase, consumed allocation and label are all set."""
    item = a_pod({"hami.io/bind-phase": "allocating", VENDOR.to_allocate_key: "GPU-a,NVIDIA,1,1:;"})
    patch = confirmation(item, "n1", VENDOR)
    assert patch is not None
    done = read_pod({"metadata": patch["metadata"], "spec": {"containers": [{"name": "main"}]}}, (VENDOR,))

    assert confirmation(done, "n1", VENDOR) is None


def test_node_name_too_long_for_a_label_is_left_out() -> None:
    """The API server would reject the whole patch."""
    patch = confirmation(a_pod({VENDOR.allocated_key: "GPU-a,NVIDIA,1,1:;"}), "n" * 64, VENDOR)

    assert patch is not None
    assert {} == patch["metadata"]["labels"]


def test_pod_without_shares_is_not_marked() -> None:
    """It may hold MIG instances that only the kubelet counts."""
    assert confirmation(a_pod(), "n1", VENDOR) is None

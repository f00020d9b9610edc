"""
When the plugin registers with the kubelet again.
"""

from hami_device_plugin.decide.registration import reason_to_register


def test_registration_that_works_is_left_alone() -> None:
    """A stream is open, and the Node has the healthy devices."""
    assert reason_to_register(600.0, open_streams=1, healthy_devices=2, allocatable="20") is None

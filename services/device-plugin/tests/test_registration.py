"""
When the plugin registers with the kubelet again.
"""

from hami_device_plugin.decide.registration import Registration, reason_to_register


def test_registration_that_works_is_left_alone() -> None:
    """A stream is open, and the Node has the healthy devices."""
    assert reason_to_register(Registration(600.0, 1, 2, "20")) is None

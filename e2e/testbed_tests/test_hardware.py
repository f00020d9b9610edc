"""
What a test may give a node beside the fake driver.
"""

from testbed.driver.mig.files import mig_minors


def test_capabilities_have_the_numbers_that_the_driver_reserves() -> None:
    """
    For the first and the last instance of the first GPU, one in the middle, and the last of all.

    Source: NVIDIA MIG User Guide, "Device Nodes and Capabilities".
    """
    numbers = dict(line.split() for line in mig_minors(32).splitlines())

    expected = {"config": "1", "monitor": "2", "gpu0/gi0/access": "3", "gpu0/gi0/ci0/access": "4"}
    expected |= {"gpu4/gi7/access": "606", "gpu4/gi7/ci0/access": "607", "gpu31/gi14/ci7/access": "4322"}
    assert expected == {name: numbers[name] for name in expected}
    assert len(numbers) == len(set(numbers.values()))

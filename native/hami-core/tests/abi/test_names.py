"""
The fake driver's tables of names say what NVIDIA's headers say.
"""

from fake_driver.names import HERE, cuda, nvml


def test_tables_of_names_are_as_generated() -> None:
    """
    Writing them again changes nothing.
    """
    assert cuda() == (HERE / "names_cuda.def").read_text()
    assert nvml() == (HERE / "names_nvml.def").read_text()

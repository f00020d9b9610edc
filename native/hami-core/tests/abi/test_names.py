"""
The fake driver's tables of names equal NVIDIA's headers.
"""

from fake_driver.exports.names import HERE, cuda, nvml


def test_tables_of_names_are_as_generated() -> None:
    """
    Generating them again changes nothing.
    """
    assert cuda() == (HERE / "names_cuda.def").read_text()
    assert nvml() == (HERE / "names_nvml.def").read_text()

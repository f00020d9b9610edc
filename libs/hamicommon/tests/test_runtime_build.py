"""
The metric of the build.
"""

import platform

from hamicommon.runtime.serving.build import build_family


def test_build_is_told_in_hamis_labels() -> None:
    """The names of HAMi's labels, the values of this Python."""
    family = build_family("1.2.3")
    [sample] = family.samples

    assert ("hami_build_info", 1) == (sample.name, sample.value)
    assert ("1.2.3", f"python{platform.python_version()}") == (sample.labels["version"], sample.labels["go_version"])
    assert ["version", "revision", "build_date", "go_version", "compiler", "platform"] == list(sample.labels)
    assert sample.labels["platform"] in {"linux/amd64", "linux/arm64"}


def test_build_names_the_commit_that_the_image_names() -> None:
    """Outside an image, the commit is unknown."""
    told = {"HAMI_BUILD_REVISION": "1f0c", "HAMI_BUILD_DATE": "2026-01-02T03:04:05+00:00"}

    [[inside], [outside]] = (build_family("1.2.3", environment).samples for environment in (told, {}))

    assert tuple(told.values()) == (inside.labels["revision"], inside.labels["build_date"])
    assert ("", "") == (outside.labels["revision"], outside.labels["build_date"])

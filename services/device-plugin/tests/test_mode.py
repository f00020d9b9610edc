"""
Whether a Node allocates by identity or under the lock.
"""

import pytest

from hami_device_plugin.decide.probe.mode import choose


@pytest.mark.parametrize(
    ("runtime", "kubelet", "problem", "expected"),
    [
        pytest.param("containerd://2.1.8", "v1.34.4", None, "identity", id="new"),
        pytest.param("cri-o://1.30.1", "v1.29.0", None, "identity", id="cri-o"),
        pytest.param("containerd://1.7.29", "v1.34.4", None, "lock", id="old containerd"),
        pytest.param("containerd://2.1.8", "v1.28.9", None, "lock", id="old kubelet"),
        pytest.param("docker://28.1.0", "v1.34.4", None, "lock", id="docker"),
        pytest.param("containerd://2.1.8", "v1.34.4", "no PodResources", "lock", id="no PodResources"),
        pytest.param("", "", None, "lock", id="unknown"),
    ],
)
def test_mode_is_identity_where_the_kubelet_and_the_runtime_have_cdi(
    runtime: str, kubelet: str, problem: str | None, expected: str
) -> None:
    """An unknown version counts as too old."""
    node = {"status": {"nodeInfo": {"containerRuntimeVersion": runtime, "kubeletVersion": kubelet}}}

    assert expected == choose("auto", node, problem).name


def test_configured_mode_is_not_questioned() -> None:
    """An operator may have enabled CDI in an old containerd."""
    assert "identity" == choose("identity", {}, "anything").name


def test_configured_way_is_taken_whatever_the_node_says() -> None:
    """A failed probe does not override the setting."""
    assert choose("identity", {}, "no PodResources").is_identity
    assert not choose("lock", {}, None).is_identity

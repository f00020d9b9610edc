"""Commands and environment equal those that Kubernetes makes of a Pod's spec."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minicluster.kubelet.podspec import (
    ContainerError,
    User,
    arguments,
    environment,
    expand,
    field,
    references,
    resource_field,
    user,
)

POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"app": "x"}, "annotations": {"a/b": "y"}},
    "spec": {"nodeName": "n", "containers": []},
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)", "1"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$(B)", "$(B)"),
        ("$A", "$A"),
        ("$(A", "$(A"),
        ("a$$b$", "a$b$"),
        ("$()", "$()"),
    ],
)
def test_variables_are_expanded_as_kubernetes_does(text: str, expected: str) -> None:
    """Two dollar signs become one, and an undefined or unclosed reference stays."""
    assert expected == expand(text, {"A": "1"})


@pytest.mark.property
@given(st.text())
def test_doubled_dollar_signs_protect_any_text(text: str) -> None:
    """Escaping and expanding returns the text."""
    assert text == expand(text.replace("$", "$$"), {"A": "1"})


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("metadata.uid", "u"),
        ("metadata.labels['app']", "x"),
        ("metadata.annotations['a/b']", "y"),
        ("metadata.labels", 'app="x"'),
        ("spec.nodeName", "n"),
        ("status.podIP", "127.0.0.1"),
    ],
)
def test_downward_api_knows_the_field(path: str, expected: str) -> None:
    """These are the common fields."""
    assert expected == field(POD, path)


def test_unknown_field_is_rejected_by_name() -> None:
    """The message lists the known fields."""
    with pytest.raises(ContainerError, match=r"'metadata\.nothing' is none of metadata\.name"):
        field(POD, "metadata.nothing")


@pytest.mark.parametrize(
    ("resource", "divisor", "expected"),
    [
        ("limits.memory", "1Mi", "512"),
        ("limits.cpu", "1", "1"),
        ("limits.cpu", "1m", "250"),
        ("requests.cpu", "0", "0"),
        ("limits.nvidia.com/gpu", "1", "2"),
        ("limits.ephemeral-storage", "1Gi", "8"),
    ],
)
def test_resource_is_divided_and_rounded_up(resource: str, divisor: str, expected: str) -> None:
    """A missing limit is the Node's allocatable."""
    container = {"resources": {"limits": {"memory": "512Mi", "cpu": "250m", "nvidia.com/gpu": "2"}}}

    shown = resource_field(container, {"resource": resource, "divisor": divisor}, {"ephemeral-storage": "8Gi"})

    assert expected == shown


def test_later_sources_of_a_variable_win() -> None:
    """The order is image and devices, envFrom, env. Only variables of the Pod are expanded in others."""
    container = {
        "name": "c",
        "envFrom": [{"configMapRef": {"name": "m"}, "prefix": "P_"}],
        "env": [{"name": "GIVEN", "value": "$(P_K) $(DEVICE)"}],
    }

    found = environment(POD, container, {("configmaps", "m"): {"K": b"v"}}, {"GIVEN": "plugin", "DEVICE": "d"}, {})

    assert {"GIVEN": "v $(DEVICE)", "DEVICE": "d", "P_K": "v"} == found


def test_command_and_args_expand_variables_of_devices() -> None:
    """Unlike env, they can use every variable of the container."""
    container = {"command": ["run"], "args": ["--id=$(DEVICE)"]}

    assert ["run", "--id=d"] == arguments(container, {"DEVICE": "d"})


def test_every_configmap_and_secret_is_found() -> None:
    """References are in environment, volumes and projected volumes."""
    env = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s1", "key": "k"}}}]
    projected = {"sources": [{"secret": {"name": "s3"}}, {"configMap": {"name": "m2"}}]}
    volumes = [{"name": "v", "secret": {"secretName": "s2"}}, {"name": "w", "projected": projected}]
    container = {"name": "c", "env": env, "envFrom": [{"configMapRef": {"name": "m1"}}]}
    pod = {"metadata": POD["metadata"], "spec": {"containers": [container], "volumes": volumes}}

    expected = {("secrets", name) for name in ("s1", "s2", "s3")} | {("configmaps", name) for name in ("m1", "m2")}
    assert expected == references(pod)


@pytest.mark.parametrize(
    ("of_pod", "of_container", "expected"),
    [
        ({}, {}, User()),
        ({"runAsUser": 1000, "runAsNonRoot": True}, {}, User(1000)),
        ({"runAsUser": 1000, "runAsGroup": 7}, {"runAsUser": 2000}, User(2000, 7)),
        ({"runAsUser": 1000}, {"runAsUser": 0}, User(0)),
        ({}, {"allowPrivilegeEscalation": False}, User(may_gain_privileges=False)),
    ],
)
def test_container_runs_as_the_user_of_its_security_context(
    of_pod: dict[str, Any], of_container: dict[str, Any], expected: User
) -> None:
    """Its own fields win over its Pod's."""
    pod = {**POD, "spec": {"securityContext": of_pod}}

    assert expected == user(pod, {"name": "main", "securityContext": of_container})


@pytest.mark.parametrize(
    ("security", "because"),
    [
        ({"runAsNonRoot": True}, "container has runAsNonRoot and image will run as root"),
        ({"runAsNonRoot": True, "runAsUser": 0}, "container's runAsUser breaks non-root policy"),
    ],
)
def test_container_that_must_not_be_root_and_would_be_is_not_created(security: dict[str, Any], because: str) -> None:
    """The message is the kubelet's."""
    with pytest.raises(ContainerError) as refused:
        user(POD, {"name": "main", "securityContext": security})

    assert ("CreateContainerConfigError", f'{because} (pod: "p_ns(u)", container: main)') == (
        refused.value.reason,
        refused.value.message,
    )

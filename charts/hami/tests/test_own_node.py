"""
The policies that keep the device plugin's account to its own Node and the Pods there.

`e2e/promises/trust/test_stolen_token.py` runs their expressions on a real API server.
"""

import json
import re

import pytest

from hamicommon.vendors import nvidia
from hamicommon.wire import keys

from .chart import Json, given, needs_helm, objects, one

pytestmark = needs_helm

NODES, PODS = "hami-own-nodes", "hami-own-pods"


def policy(name: str, *arguments: str) -> Json:
    """Return the spec of the policy *name*."""
    return one("ValidatingAdmissionPolicy", name, *arguments)["spec"]  # type: ignore[no-any-return]


def changeable(name: str, part: str) -> set[str]:
    """Return the keys of *part*, annotations or labels, that the plugin may change."""
    (found,) = (
        each["expression"] for each in policy(name)["validations"] if f"variables.{part}.all" in each["expression"]
    )
    first, second = re.findall(r"key in (\[.*?\])", found)
    assert first == second
    return set(json.loads(first))


def test_plugin_may_change_what_it_writes_and_nothing_else() -> None:
    """Annotations of its Node; annotations and a label of Pods."""
    assert set(nvidia.PLUGIN_NODE_KEYS) == changeable(NODES, "annotations")
    assert set() == changeable(NODES, "labels")
    assert {keys.BIND_PHASE, *nvidia.PLUGIN_POD_KEYS} == changeable(PODS, "annotations")
    assert {keys.POD_NODE} == changeable(PODS, "labels")


@pytest.mark.parametrize("name", [NODES, PODS])
def test_policy_is_for_the_account_of_the_release_and_fails_closed(name: str) -> None:
    """Other writers of Nodes and Pods never meet it."""
    values = given(
        {"devicePlugin": {"serviceAccount": {"create": False, "name": "theirs"}}, "namespaceOverride": "gpus"}
    )
    (condition,) = policy(name, *values)["matchConditions"]

    assert condition["expression"].endswith('request.userInfo.username == "system:serviceaccount:gpus:theirs"')
    assert "Fail" == policy(name)["failurePolicy"]
    assert {"policyName": name, "validationActions": ["Deny"]} == one("ValidatingAdmissionPolicyBinding", name)["spec"]


@pytest.mark.parametrize(
    ("values", "is_made"),
    [
        ({}, True),
        ({"scheduler": {"enabled": False}, "webhook": {"enabled": False}}, True),
        ({"devicePlugin": {"enabled": False}}, False),
        ({"devicePlugin": {"ownNodeOnly": False}}, False),
    ],
    ids=["default", "plugin alone", "HAMi's plugin", "off"],
)
def test_policies_come_and_go_with_the_device_plugin(values: Json, is_made: bool) -> None:
    """They can be switched off."""
    made = {each["metadata"]["name"] for each in objects(*given(values)) if "AdmissionPolicy" in each["kind"]}

    assert is_made == ({NODES, PODS} <= made)
    assert is_made == bool({NODES, PODS} & made)


def test_policies_need_an_api_server_that_knows_the_node_of_a_token() -> None:
    """Kubernetes 1.30 is the first; the node parts also run on older ones."""
    values = given({"scheduler": {"enabled": False}, "webhook": {"enabled": False}})
    made = {each["kind"] for each in objects(*values, "--kube-version", "1.29.3")}

    assert "DaemonSet" in made
    assert not any("AdmissionPolicy" in kind for kind in made)

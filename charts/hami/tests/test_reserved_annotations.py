"""
The policy that lets only schedulers write the annotations with grants, and only device plugins what is left of them.

`e2e/promises/trust/test_forged_annotations.py` runs its expressions on a real API server.
"""

import json
import re

import pytest

from hamicommon.config.device_config import load_device_config
from hamicommon.vendors import nvidia

from .chart import Json, given, needs_helm, objects, one

pytestmark = needs_helm

NAME = "hami-reserved-annotations"
HAMI = "system:serviceaccount:kube-system:hami-scheduler"
HAMIS_PLUGIN = "system:serviceaccount:kube-system:hami-device-plugin"


def policy(*arguments: str, **options: str) -> Json:
    """Return the spec of the policy."""
    return one("ValidatingAdmissionPolicy", NAME, *arguments, **options)["spec"]  # type: ignore[no-any-return]


def choice(*arguments: str, **options: str) -> list[str]:
    """Return three JSON lists of the policy: device plugins, and the annotations reserved from them and from others."""
    spec = policy(*arguments, **options)
    (deciding,) = (each["expression"] for each in spec["matchConditions"] if each["name"] == "writes-a-grant")
    (naming,) = (each["expression"] for each in spec["variables"] if each["name"] == "written")
    assert deciding.replace(".exists(", ".filter(") == naming
    found = re.match(r".*username in (\[.*?\]) \? (\[.*?\]) : (\[.*?\])\)\.exists\(", deciding)
    assert found, deciding
    return list(found.groups())


def reserved(*arguments: str) -> list[str]:
    """Return the annotations that only schedulers may write."""
    return json.loads(choice(*arguments)[1])  # type: ignore[no-any-return]


def trusted(*arguments: str, **options: str) -> list[str]:
    """Return the users who may write these annotations."""
    condition = policy(*arguments, **options)["matchConditions"][0]
    (users,) = re.findall(r"username in (\[.*?\])", condition["expression"])
    return json.loads(users)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"devices": {"ascend": {"enabled": True}}},
        {"devices": {"iluvatar": {"enabled": True}}},
        {"devices": {"ascend": {"enabled": True}, "biren": {"enabled": False}}, "deviceConfig": {"amd": None}},
        {
            "devices": {"ascend": {"enabled": True}, "iluvatar": {"enabled": True}},
            "deviceConfig": {"vnpus": {"configs": [{"commonWord": "Other"}]}, "iluvatars": []},
        },
        {
            "devices": {"ascend": {"enabled": True}, "iluvatar": {"enabled": True}},
            "deviceConfig": {
                "content": "nvidia: {resourceCountName: a.example/gpu}\nvnpus: [{commonWord: Old}]\n"
                "iluvatars: [{commonWord: Word}]"
            },
        },
    ],
    ids=["default", "ascend", "iluvatar", "less", "own chips", "content"],
)
def test_reserved_annotations_are_those_that_count(values: Json) -> None:
    """Each vendor's annotation is reserved; a chip's only if the arguments enable it."""
    arguments = given(values)
    config = load_device_config(one("ConfigMap", "hami-scheduler-device", *arguments)["data"]["device-config.yaml"])
    is_on = {name: values.get("devices", {}).get(name, {}).get("enabled", False) for name in ("ascend", "iluvatar")}
    read = config.enabled(has_ascend=is_on["ascend"], has_iluvatar=is_on["iluvatar"])

    assert sorted(vendor.allocated_key for vendor in read.vendors()) == reserved(*arguments)


def test_device_plugins_may_write_what_is_left_to_hand_out() -> None:
    """Nobody else may but schedulers, who write both with the grant."""
    plugins, from_plugins, from_others = map(json.loads, choice())

    assert ["system:serviceaccount:hami:hami-device-plugin", HAMIS_PLUGIN] == plugins
    assert set(nvidia.PLUGIN_POD_KEYS) == set(from_others) - set(from_plugins)
    assert set(from_plugins) < set(from_others)


def test_trusted_plugins_can_be_set() -> None:
    """HAMi's device plugin may have another name or namespace."""
    values = {
        "scheduler": {"reservedAnnotations": {"trustedPlugins": ["other"]}},
        "devicePlugin": {"serviceAccount": {"create": False, "name": "theirs"}},
        "namespaceOverride": "gpus",
    }

    assert ["system:serviceaccount:gpus:theirs", "other"] == json.loads(choice(*given(values))[0])


def test_what_other_vendors_plugins_write_is_not_reserved() -> None:
    """Their accounts are not known; they record their progress on the Pod."""
    config = load_device_config(one("ConfigMap", "hami-scheduler-device")["data"]["device-config.yaml"])
    others = {vendor.to_allocate_key for vendor in config.vendors()} - {nvidia.TO_ALLOCATE_KEY}

    assert others.isdisjoint(json.loads(choice()[2]))
    assert "hami.io/bind-phase" not in json.loads(choice()[2])


def test_policy_covers_every_way_to_write_a_pod() -> None:
    """Subresources can change annotations; a Binding's annotations become the Pod's."""
    (rule,) = policy()["matchConstraints"]["resourceRules"]

    assert (["pods", "pods/*", "bindings"], ["CREATE", "UPDATE"]) == (rule["resources"], rule["operations"])


def test_policy_fails_closed() -> None:
    """The API server evaluates the policy without our services, and it fails closed."""
    binding = one("ValidatingAdmissionPolicyBinding", NAME)["spec"]

    assert "Fail" == policy()["failurePolicy"]
    assert {"policyName": NAME, "validationActions": ["Deny"]} == binding


def test_our_scheduler_and_hamis_are_trusted() -> None:
    """Trust follows the account of the release's scheduler Pods."""
    values = given({"scheduler": {"serviceAccount": {"create": False, "name": "theirs"}}, "namespaceOverride": "gpus"})

    assert ["system:serviceaccount:hami:hami-scheduler", HAMI] == trusted()
    assert ["system:serviceaccount:gpus:theirs", HAMI] == trusted(*values)


def test_trusted_users_can_be_set() -> None:
    """The list may name HAMi's scheduler in another namespace, or be empty."""
    own = "system:serviceaccount:hami:hami-scheduler"

    assert [own, "other"] == trusted(*given({"scheduler": {"reservedAnnotations": {"trustedUsers": ["other"]}}}))
    assert [own] == trusted(*given({"scheduler": {"reservedAnnotations": {"trustedUsers": []}}}))


@pytest.mark.parametrize(
    ("values", "is_made"),
    [
        ({}, True),
        ({"webhook": {"enabled": False}, "devicePlugin": {"enabled": False}}, True),
        ({"scheduler": {"enabled": False}}, False),
        ({"scheduler": {"reservedAnnotations": {"enabled": False}}}, False),
    ],
    ids=["default", "scheduler alone", "HAMi's scheduler", "off"],
)
def test_policy_comes_and_goes_with_the_scheduler(values: Json, is_made: bool) -> None:
    """Without our scheduler, HAMi's must not be blocked."""
    made = {each["kind"] for each in objects(*given(values)) if NAME == each["metadata"]["name"]}

    assert ({"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} if is_made else set()) == made


def test_two_releases_have_a_policy_each() -> None:
    """Cluster-scoped objects begin with the release's name."""
    names = {each["metadata"]["name"] for each in objects(release="gpu") if "AdmissionPolicy" in each["kind"]}

    assert {f"gpu-hami-{name}" for name in ("reserved-annotations", "own-nodes", "own-pods")} == names

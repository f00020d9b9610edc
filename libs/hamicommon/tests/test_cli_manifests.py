"""
Manifests that somebody else has written.
"""

import pytest

from hamicommon.cli.manifests import VALUES_LIMIT, ManifestError, documents, pods_of

TEMPLATE = "template: {spec: {containers: [{name: a}]}}"
BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{after}: &{after} [{', '.join([f'*{before}'] * 10)}]\n"
    for before, after in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{1: 2}", "m: JSON cannot say what it has: Dict key must be str"),
        ("a: 99999999999999999999", "m: JSON cannot say what it has: Integer exceeds 64-bit range"),
        ("a: !!set {b, c}", "m: JSON cannot say what it has: Type is not JSON serializable: set"),
        ("&a [*a]", f"m: has more than {VALUES_LIMIT} values"),
        (BOMB, f"m: has more than {VALUES_LIMIT} values"),
        ("[" * 300 + "]" * 300, "m: JSON cannot say what it has: Recursion limit reached"),
    ],
    ids=["key", "number", "set", "circle", "bomb", "deep"],
)
def test_manifest_that_is_no_json_is_one_sentence(text: str, words: str) -> None:
    """The API server takes JSON; what aliases multiply is never written out."""
    with pytest.raises(ManifestError, match=words):
        documents(text + "\n# YAML", "m")


def test_dates_of_yaml_are_texts() -> None:
    """As in the JSON that kubectl sends."""
    assert [{"at": "2026-01-01"}] == documents("at: 2026-01-01", "m")


@pytest.mark.parametrize("metadata", ["metadata: x, spec: {" + TEMPLATE + "}", "spec: {template: {metadata: x}}"])
def test_metadata_that_is_no_object_is_said(metadata: str) -> None:
    """With the kind, the field and its value."""
    with pytest.raises(ManifestError, match="m: Deployment: metadata is 'x'; it must be an object"):
        pods_of(documents(f"{{kind: Deployment, {metadata}}}", "m"), "m")


@pytest.mark.parametrize("spec", ["5", "[]", "{jobTemplate: 5}", "{jobTemplate: {spec: x}}", "{template: x}"])
def test_kind_that_creates_no_pods_has_any_spec(spec: str) -> None:
    """It is not this reader's to judge."""
    assert [] == pods_of(documents(f"{{kind: Odd, spec: {spec}}}", "m"), "m")

"""
AdmissionReviews of both versions, and bodies that are not reviews.
"""

import base64
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_webhook.decide.admission import Admission, Outcome
from hami_webhook.decide.review import Review, ReviewError, answer, read_review


def a_body(**request: Any) -> bytes:
    """Return a v1 AdmissionReview about a Pod's creation."""
    filled = {
        "uid": "u-1",
        "operation": "CREATE",
        "namespace": "ns",
        "name": "p",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "object": {"kind": "Pod"},
        **request,
    }
    return orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": filled})


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_the_answer_is_of_the_questions_version(version: str) -> None:
    """And has its uid."""
    review = read_review(a_body().replace(b"admission.k8s.io/v1", f"admission.k8s.io/{version}".encode()))
    reply = orjson.loads(answer(review, Admission(Outcome.NOT_ASKING)))

    assert {
        "apiVersion": f"admission.k8s.io/{version}",
        "kind": "AdmissionReview",
        "response": {"uid": "u-1", "allowed": True},
    } == reply


def test_a_question_is_read_whole() -> None:
    """With every field that the decision and the log need."""
    assert Review("admission.k8s.io/v1", "u-1", "ns", "p", True, {"kind": "Pod"}) == read_review(a_body())


def test_a_patch_travels_in_base64_and_a_refusal_as_a_status() -> None:
    """As the API server decodes them."""
    patch = ({"op": "add", "path": "/a", "value": 1},)
    changed = orjson.loads(answer(read_review(a_body()), Admission(Outcome.CHANGED, patch=patch)))["response"]
    assert "JSONPatch" == changed["patchType"]
    assert list(patch) == orjson.loads(base64.b64decode(changed["patch"]))

    refusal = Admission(Outcome.PRIVILEGED, False, 403, "Forbidden", "container c is privileged", (), ("more",))
    denied = orjson.loads(answer(read_review(a_body()), refusal))["response"]
    assert {"code": 403, "reason": "Forbidden", "message": "container c is privileged"} == denied["status"]
    assert (False, ["more"]) == (denied["allowed"], denied["warnings"])


@pytest.mark.parametrize(
    "request_",
    [
        {"operation": "UPDATE"},
        {"operation": "DELETE"},
        {"subResource": "ephemeralcontainers"},
        {"resource": {"group": "apps", "resource": "deployments"}},
        {"resource": {"group": "x", "resource": "pods"}},
    ],
)
def test_only_the_creation_of_a_pod_is_for_us(request_: dict[str, Any]) -> None:
    """A webhook that is registered for more changes nothing else."""
    assert not read_review(a_body(**request_)).is_pod_creation


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "body: is not JSON"),
        (b"{", "body: is not JSON"),
        (b"[]", "body: must be an AdmissionReview object, not list"),
        (b'{"a":"\xff"}', "body: is not JSON"),
        (b'{"a":"\\ud800"}', "body: is not JSON"),
        (b"[" * 100_000, "body: is not JSON"),
        (b"[" * 1000 + b"]" * 1000, "body: "),
        (b'{"apiVersion":"v1"}', "apiVersion: must be admission.k8s.io/v1 or admission.k8s.io/v1beta1, not 'v1'"),
        (a_body().replace(b"AdmissionReview", b"Pod"), "kind: must be AdmissionReview, not 'Pod'"),
        (a_body(uid=7), "request.uid: must be a string of 1 to 256 characters"),
        (a_body(uid="x" * 257), "request.uid: must be a string of 1 to 256 characters"),
        (a_body(namespace=[]), "request.namespace: must be a string"),
        (a_body(operation={}), "request.operation: must be a string"),
        (a_body(resource="pods"), "request.resource: must be an object"),
        (a_body().replace(b'"name"', b'"uid":"u-2","name"'), "body: key 'uid' is given twice in one object"),
        (a_body(object=None).replace(b"null", b'{"a":{"b":1,"b":2}}'), "body: key 'b' is given twice in one object"),
        (b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}', "request: must be an object"),
    ],
)
def test_a_body_that_is_no_review_is_refused_by_field(body: bytes, message: str) -> None:
    """The message names the field."""
    with pytest.raises(ReviewError) as raised:
        read_review(body)

    assert str(raised.value).startswith(message)


@pytest.mark.property
@given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace"))))
def test_any_body_is_a_review_or_a_review_error(body: bytes) -> None:
    """No bytes raise another error."""
    with pytest.raises(ReviewError):
        read_review(body)

"""
AdmissionReviews, as the webhook answers them: an answer in the form of the API, or ReviewError, which is status 400.

The patch of an answer applies to the Pod, and a second review of the patched Pod changes nothing.
"""

import base64
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any, Final

import orjson
from prometheus_client import CollectorRegistry, Gauge

from fuzz.targets.forms import DEVICE_CONFIGS, WEBHOOK, some
from hami_webhook.config import Config
from hami_webhook.decide.review import Review, ReviewError, answer, read_review
from hami_webhook.serve.admissions import Admissions
from hamicommon.config.device_config import load_device_config
from minicluster.apiserver.api.patches import json_patch

INPUTS: Final = 4_000
IS_JSON: Final = True


def check(data: bytes) -> None:
    """Answer a review."""
    try:
        review = read_review(data)
    except ReviewError:
        return
    response = _response(review)
    assert response["uid"] == review.uid
    assert isinstance(response["allowed"], bool)
    assert all(isinstance(text, str) for text in response.get("warnings", ()))
    if "patch" in response:
        assert response["patchType"] == "JSONPatch"
        try:
            patched = json_patch(review.object, orjson.loads(base64.b64decode(response["patch"])))
        except RecursionError:
            return  # This stand-in for the API server cannot copy what is nested so deeply.
        again = _admissions().decide(replace(review, object=patched))
        assert again.allowed
        assert not again.patch, again.patch


def seeds() -> Iterator[bytes]:
    """Return reviews of Pods with every vendor's resources."""
    for name in ("pods.json", "pods-more.json"):
        for case in some(WEBHOOK / name, 30):
            request = {"uid": "u", "namespace": "default", "operation": "CREATE", "object": case["pod"]}
            request["resource"] = {"group": "", "version": "v1", "resource": "pods"}
            yield orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
    for case in some(WEBHOOK / "refusals.json"):
        pod = {"metadata": {"annotations": case["annotations"]}, "spec": {"containers": [{"name": "c0"}]}}
        pod["spec"]["containers"][0]["resources"] = {"limits": case["limits"]}
        request = {"uid": "u", "object": pod}
        yield orjson.dumps({"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "request": request})


def _response(review: Review) -> Any:
    written = orjson.loads(answer(review, _admissions().decide(review)))
    assert (written["apiVersion"], written["kind"]) == (review.api_version, "AdmissionReview")
    return written["response"]


@cache
def _admissions() -> Admissions:
    """Return the webhook's decisions, by HAMi's device config, with a quota in one namespace."""
    config = Config(http_bind="", device_config_file="", scheduler_name="hami-scheduler")
    devices = load_device_config(DEVICE_CONFIGS[0].read_text())
    admissions = Admissions(config, devices, Gauge("unapplied", "Quotas.", ["namespace"], registry=CollectorRegistry()))
    hard = {"limits.nvidia.com/gpumem": "5000", "limits.nvidia.com/gpucores": "200"}
    admissions.quotas.put_quota({"metadata": {"namespace": "default", "name": "q", "uid": "q"}, "spec": {"hard": hard}})
    return admissions

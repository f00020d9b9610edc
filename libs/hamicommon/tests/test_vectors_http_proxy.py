"""
The proxies of URLs: `vectors/http-proxy`, Go's own answers.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from hamicommon.runtime.api.http_proxy import proxy_of

ANSWERS = Path(__file__).parents[1] / "vectors" / "http-proxy" / "answers.json"


@pytest.mark.parametrize("case", [pytest.param(case, id=case["case"]) for case in json.loads(ANSWERS.read_text())])
def test_proxy_is_the_one_that_go_uses(case: dict[str, Any]) -> None:
    """A value of NO_PROXY that is right for kubectl is right here."""
    found = {url: proxy_of(url, case["environment"]) for url in case["proxies"]}

    assert case["proxies"] == found


def test_a_url_that_is_not_http_has_no_proxy() -> None:
    """Go has none for other schemes either."""
    assert proxy_of("unix:///run/api", {"HTTPS_PROXY": "http://p:1", "HTTP_PROXY": "http://p:1"}) is None

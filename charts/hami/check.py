"""
Check an installation from inside the cluster; `helm test` runs this in a Pod.

It asks each service whether it is ready, and the API server, as a dry run, for a Pod with a share, to see that the
webhook admits it. It creates nothing, and uses only Python's own library, so that any image of ours can run it.
"""

import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SECONDS = 10
"""How long one answer may take."""


def main(environment: Mapping[str, str]) -> int:
    """Print a line for each check, and return 0 if all are right."""
    problems = [problem for check in checks(environment) for problem in check]
    sys.stdout.write("".join(f"{problem}\n" for problem in problems) or "all checks passed\n")
    return 1 if problems else 0


def checks(environment: Mapping[str, str]) -> Iterator[Iterator[str]]:
    """Yield the problems of each check."""
    patience = float(environment.get("PATIENCE_SECONDS", "60"))
    for url in environment["READY_URLS"].split():
        yield unready(url, time.monotonic() + patience)
    if environment.get("RESOURCE_NAME"):
        yield unadmitted(environment)


def unready(url: str, deadline: float) -> Iterator[str]:
    """Yield why the service at *url* is not ready at *deadline*."""
    while True:
        try:
            with urllib.request.urlopen(url, timeout=SECONDS):
                return
        except OSError as error:
            if time.monotonic() >= deadline:
                hint = "look at the Pods of this service, and whether a NetworkPolicy is in the way"
                yield f"{url}: {reason(error)}: {hint}"
                return
        time.sleep(1)


def unadmitted(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield why a Pod with a share would not reach the scheduler."""
    name, scheduler = environment["RESOURCE_NAME"], environment["SCHEDULER_NAME"]
    try:
        admitted = dry_run(environment, a_pod(name))
    except OSError as error:
        yield f"the API server does not admit a Pod with {name}: {reason(error)}"
        return
    found = admitted["spec"].get("schedulerName")
    if found != scheduler:
        yield (
            f"a Pod with {name} would go to the scheduler {found}, not to {scheduler}: the webhook did not see it; "
            f"compare the MutatingWebhookConfiguration's conditions with the Pod"
        )


def reason(error: OSError) -> str:
    """Return what the answer says is wrong, or why there was none."""
    if not isinstance(error, urllib.error.HTTPError):
        return str(getattr(error, "reason", error))
    text = error.read().decode(errors="replace").strip()
    try:
        return str(json.loads(text)["message"])
    except (ValueError, TypeError, KeyError):
        return f"{error}: {text}"


def a_pod(resource_name: str) -> dict[str, Any]:
    """Return a Pod that asks for one share, and that every Pod security level accepts."""
    context = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    limits = {resource_name: "1", "cpu": "1m", "memory": "1Mi"}
    container = {"name": "check", "image": "none", "resources": {"limits": limits}, "securityContext": context}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "hami-check-"},
        "spec": {"containers": [container]},
    }


def dry_run(environment: Mapping[str, str], pod: dict[str, Any]) -> dict[str, Any]:
    """Return *pod* as the API server would create it. Raises: OSError."""
    account = Path(environment.get("ACCOUNT", ACCOUNT))
    api = environment["API_SERVER"]
    request = urllib.request.Request(
        f"{api}/api/v1/namespaces/{environment['NAMESPACE']}/pods?dryRun=All",
        data=json.dumps(pod).encode(),
        headers={"Authorization": f"Bearer {(account / 'token').read_text()}", "Content-Type": "application/json"},
    )
    tls = ssl.create_default_context(cafile=str(account / "ca.crt")) if api.startswith("https:") else None
    with urllib.request.urlopen(request, timeout=SECONDS, context=tls) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


if __name__ == "__main__":
    sys.exit(main(os.environ))

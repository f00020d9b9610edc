"""
HAMi's forms from 2.4 to 2.10: the tests that read HAMi's own answers and put HAMi's objects beside our services.

HAMi's parts cannot run here, so their forms stand for them: what each version wrote, in `libs/hamicommon/vectors`.
"""

import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from harness.cluster import ROOT

VECTORS = ROOT / "libs/hamicommon/vectors"
TESTS = Path("libs/hamicommon/tests")
LIVE = Path("e2e/promises/versions")
_VERSION = re.compile(r"\bv2\.\d+\.\d+\b")


@dataclass(frozen=True)
class Form:
    """What HAMi's parts and ours talk through, and what tests it."""

    name: str
    vectors: tuple[str, ...]
    """Folders of VECTORS, none if the tests have their texts in themselves."""
    tests: tuple[Path, ...]


FORMS = (
    Form("annotations of Nodes", ("node-devices", "pair-scores", "handshake"), (TESTS / "test_vectors_inventory.py",)),
    Form("annotations of Pods", ("pod-devices", "mig-allocations", "mig-suffix"), (TESTS / "test_vectors_pods.py",)),
    Form(
        "node locks, lists, weights",
        ("node-lock", "device-lists", "scoring-weights", "policies"),
        (TESTS / "test_vectors_locks_and_lists.py", TESTS / "test_vectors_edge_cases.py"),
    ),
    Form("regions", ("region",), (TESTS / "test_vectors_region.py",)),
    Form("a live Node and Pods with HAMi's annotations", (), (LIVE / "test_hami_annotations.py",)),
    Form("live services that write HAMi's older forms", (), (LIVE / "test_older_peers.py",)),
)


@dataclass(frozen=True)
class Tested:
    """How the tests of a form ended."""

    name: str
    cases: int
    """In the vectors."""
    versions: tuple[str, ...]
    """Those that the vectors name."""
    passed: int
    failed: tuple[str, ...]
    """The names of the tests that failed."""


def tested(form: Form) -> Tested:
    """Run the tests of a form."""
    texts = [file.read_text() for folder in form.vectors for file in sorted((VECTORS / folder).glob("*.json"))]
    named = {version for text in texts for version in _VERSION.findall(text)}
    with tempfile.NamedTemporaryFile(suffix=".xml") as report:
        command = [sys.executable, "-m", "pytest", "-q", "-n0", f"--junitxml={report.name}", *map(str, form.tests)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        ran = [*ElementTree.parse(report.name).iter("testcase")] if Path(report.name).stat().st_size else []
    failed = tuple(
        case.get("name", "") for case in ran if case.find("failure") is not None or case.find("error") is not None
    )
    if not ran or (done.returncode and not failed):
        failed = (f"pytest ended with {done.returncode}: {done.stdout.strip()[-300:]}",)
    return Tested(
        form.name,
        sum(text.count('"case"') for text in texts),
        tuple(sorted(named, key=lambda each: int(each.split(".")[1]))),
        len(ran) - len(failed),
        failed,
    )

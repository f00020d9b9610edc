"""
What stays of a cluster when a test on it fails: logs, and the objects of the embedded API server.

Owns `build/failed`, with a folder for each test that failed. Must never change the cluster.
"""

import re
import shutil
from pathlib import Path

from harness.cluster import ROOT

FAILED = ROOT / "build/failed"
KEPT = ("logs", "*/logs", "*/own/var/log/pods", "apiserver")
"""In the folder of a cluster: the logs of its parts and of its machines, their containers' logs, stored objects."""


def place_of(test: str, failed: Path = FAILED) -> Path:
    """Return the folder for what the test with the node ID *test* leaves."""
    return failed / re.sub(r"[^\w.-]+", "-", test).strip("-")


def keep(cluster: Path, test: str, failed: Path = FAILED) -> Path:
    """Copy the logs in the folder of a *cluster* for the test with the node ID *test*, and return the copy."""
    place = place_of(test, failed)
    for pattern in KEPT:
        for found in cluster.glob(pattern):
            copy = place / found.relative_to(cluster)
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(found, copy, symlinks=True)
    place.mkdir(parents=True, exist_ok=True)
    return place

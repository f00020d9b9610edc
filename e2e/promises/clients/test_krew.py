"""
Krew installs `kubectl hami` from the manifest and the archive that client_file.py makes.
"""

import asyncio
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from controlplane.programs import build
from harness.cluster import ROOT, Cluster

pytestmark = [
    pytest.mark.real_only,
    pytest.mark.timeout(600),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="Krew finds only the archive of its own platform"),
]

PLATFORM = "linux-amd64"
MADE = ROOT / "build/krew"
Kubectl = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def manifest() -> Iterator[Path]:
    """Return the manifest of the plugin, whose archive this machine serves."""
    serving = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(MADE)))
    threading.Thread(target=serving.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{serving.server_port}"
    subprocess.run([sys.executable, "tools/client_file.py", "--krew", url, PLATFORM], cwd=ROOT, check=True)
    yield MADE / "hami.yaml"
    serving.shutdown()
    serving.server_close()


@pytest.fixture
def kubectl(cluster: Cluster, tmp_path: Path) -> Kubectl:
    """Return a function that runs kubectl as somebody who has only Krew, and no plugin yet."""
    krew, programs = tmp_path / "krew", tmp_path / "programs"
    programs.mkdir()
    (programs / "kubectl-krew").symlink_to(build.made(build.KREW, print) / "krew")
    environment = {
        "PATH": f"{programs}:{krew / 'bin'}:{build.binaries()}:{os.defpath}",
        "HOME": str(tmp_path),
        "KREW_ROOT": str(krew),
        "KREW_NO_UPGRADE_CHECK": "1",
        "KUBECONFIG": str(cluster.kubeconfig),
    }

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [build.binaries() / "kubectl", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


async def test_krew_installs_the_archive_and_no_other(
    cluster: Cluster, kubectl: Kubectl, manifest: Path, tmp_path: Path
) -> None:
    """It downloads the archive, needs no index, and compares the archive's digest with the manifest's."""
    [archive] = MADE.glob("*.tar.gz")
    (tmp_path / "other.tar.gz").write_bytes(archive.read_bytes() + b"more")
    other = f"--archive={tmp_path / 'other.tar.gz'}"
    refused = await asyncio.to_thread(kubectl, "krew", "install", f"--manifest={manifest}", other)
    assert 0 != refused.returncode
    assert "checksum does not match" in refused.stderr

    installed = await asyncio.to_thread(kubectl, "krew", "install", f"--manifest={manifest}")
    assert 0 == installed.returncode, installed.stderr

    answer = await asyncio.to_thread(kubectl, "hami", "top", "nodes")

    assert (0, "") == (answer.returncode, answer.stderr)
    assert [node.name for node in cluster.nodes] == [row.split()[0] for row in answer.stdout.splitlines()[1:]]

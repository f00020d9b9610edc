"""
The command `kubectl hami ui`, and the Events that its page shows.
"""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml

from hamicommon.cli.manifests import ManifestError
from kubectl_hami.answer.doctor import checks
from kubectl_hami.answer.events import events_about
from kubectl_hami.commands.command_line import UsageError
from kubectl_hami.commands.ui import Answers
from kubectl_hami.main import parser
from kubectl_hami.read.collect import examine
from kubectl_hami.show.form import shape

from .builders import a_device, a_node, a_pod, a_refusal, a_scrape, a_share
from .fakes import FakeSource, a_service
from .prometheus import Prometheus

PROGRAM = Path(sys.executable).with_name("kubectl-hami")


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """A kubeconfig whose server is not there: the page starts without it."""
    names = {"cluster": {"server": "http://127.0.0.1:1"}, "context": {"cluster": "c", "user": "u"}, "user": {}}
    config = {f"{kind}s": [{"name": kind[0], kind: value}] for kind, value in names.items()}
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "current-context": "c", **config}))
    return file


@pytest.fixture
def port() -> Iterator[int]:
    """A port of loopback that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


def test_ui_prints_the_address_answers_there_and_ends_well_on_ctrl_c(kubeconfig: Path) -> None:
    """The address is the only line on stdout, so that a script can open it."""
    # A shell lets what a script starts in the background ignore Ctrl-C, these tests for example.
    heeds_ctrl_c = ("env", "--default-signal=INT")
    command = [*heeds_ctrl_c, str(PROGRAM), "ui", "--port=0", f"--kubeconfig={kubeconfig}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        with pytest.raises(OSError, match="403"):
            urlopen(address, timeout=10)  # follows the redirect, without the cookie
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=20)

    assert address.startswith("http://127.0.0.1:")
    assert ("", 0) == (rest, process.returncode)
    assert "kubectl hami ui: the page is at this address, for you alone; Ctrl-C ends it\n" == errors


@pytest.mark.parametrize("bad", ["taken", "-1", "65536"])
def test_ui_says_that_its_port_cannot_be_used(kubeconfig: Path, port: int, bad: str) -> None:
    """It names the option and what to write instead."""
    number = str(port) if bad == "taken" else bad
    command = [str(PROGRAM), "ui", f"--port={number}", f"--kubeconfig={kubeconfig}"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert 2 == done.returncode
    assert done.stderr.startswith(f"kubectl hami ui: --port {number} cannot be used: ")
    assert done.stderr.endswith("; --port 0 takes any free one\n")


def test_events_come_newest_first_whichever_form_they_have() -> None:
    """A count with a last time, a series, and a single moment; one without any is the oldest."""
    counted = {**a_refusal(message="counted"), "lastTimestamp": "2026-11-25T12:00:00Z", "count": 3}
    series = {"message": "series", "series": {"count": 9, "lastObservedTime": "2026-11-25T12:02:00.000000Z"}}
    single = {"message": "single", "eventTime": "2026-11-25T12:01:00.000000Z", "lastTimestamp": None}

    found = events_about([{"message": "bare"}, counted, series, single])

    assert [("series", 9), ("single", 1), ("counted", 3), ("bare", 1)] == [(one.message, one.count) for one in found]


def test_an_event_with_a_count_that_is_no_number_counts_once() -> None:
    """A tenant who may create Events can write any value."""
    [found] = events_about([{"message": "odd", "count": "many", "series": ["x"], "lastTimestamp": 7}])

    assert (1, None) == (found.count, found.at)


MANIFEST = "kind: Pod\nmetadata: {name: new}\nspec: {containers: [{name: main}]}\n"
REPORT = {"pod": "default/new", "verdict": "fits", "node": "n1", "policy": "binpack", "summary": "fits n1"}


def answers(*options: str, reports: object = ()) -> Answers:
    """Return the answers of a cluster with one Pod that holds a share, whose scheduler answers *reports*."""
    services = [a_service("scheduler", "s", explain=9396), a_service("monitor", "m", metrics=9394)]
    counted = 'hami_namespace_held_seconds_total{namespace="default",node="n1",device_type="T4"} 7200\n'
    scrape = a_scrape({"hami_vgpu_memory_limit_bytes": 2000 * 2**20}) + counted.encode()
    source = FakeSource(
        {
            "/api/v1/nodes": {"items": [a_node("n1", a_device())]},
            "/api/v1/pods": {"items": [*services, a_pod("p", a_share())]},
            "/api/v1/namespaces/hami/pods/m:9394/proxy/metrics": scrape,
        },
        {("s", "/simulate"): reports, ("s", "/simulate?add=1x1+T4%3A16384"): reports},
    )
    return Answers(source, parser().parse_args(["ui", *options]))


def test_picture_has_the_status_of_each_pod() -> None:
    """Beside the devices, which do not know it."""
    [pod] = answers().read_picture()["pods"]

    assert ("default", "p", "Running", "2026-11-25T11:55:00Z") == tuple(
        pod[name] for name in ("namespace", "pod", "phase", "since")
    )


def test_page_has_the_checks_of_doctor() -> None:
    """Those that the command prints, in one JSON form."""
    found = answers()

    assert shape(tuple(checks(examine(found._source)))) == found.read_doctor()["checks"]


def test_page_has_the_verdicts_of_grants() -> None:
    """Of the picture that it shows."""
    found = answers()
    found.read_picture()

    [one] = found.read_grants()["grants"]

    assert ("broken", "its limit is 2000 MiB, and 3000 MiB are granted") == (one["verdict"], one["why"])
    assert found.read_grants() == answers().read_grants()


def test_page_has_the_device_hours_of_usage(prometheus: Prometheus) -> None:
    """Of the monitors; with Prometheus also of the last days, as the command asks for them."""
    [ever] = answers().read_usage("namespaces", "")["usage"]
    row = {"metric": {"namespace": "a", "device_type": "T4"}, "value": [0, "3600"]}
    prometheus.answer = json.dumps({"data": {"result": [row]}}).encode()

    found = answers("--prometheus", prometheus.url, "--context", "c").read_usage("namespaces", "7d")

    [lately] = found["usage"]
    assert [("default", 2.0), ("a", 1.0)] == [(one["namespace"], one["heldHours"]) for one in (ever, lately)]
    assert ("24h", "7d", "30d") == found["spans"]
    assert "604800s" in prometheus.asked[0]


@pytest.mark.parametrize(("of", "span"), [("namespaces", "7d"), ("devices", "")])
def test_page_says_which_device_hours_it_has(of: str, span: str) -> None:
    """Without Prometheus the sums since counting began are all."""
    with pytest.raises(UsageError, match=f"usage of {of} in .*: ask for namespaces, pods, models"):
        answers().read_usage(of, span)


def test_page_asks_the_scheduler_about_the_pods_of_a_manifest() -> None:
    """In the namespace that is typed, else that of the context; the headline is the command's."""
    [report] = answers(reports=[REPORT]).read_simulation(MANIFEST, "", [])["reports"]

    assert ("default/new fits node n1 (binpack)", True) == (report["headline"], report["isWell"])


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        ("{", "the manifest: neither JSON nor YAML"),
        ("kind: ConfigMap", "the manifest: holds no Pod and no object that creates Pods"),
        ("[]", "the manifest: is no Kubernetes object"),
        ("&a [*a]", "the manifest: has more than 1000000 values"),
        ("", "the manifest: holds no Pod"),
    ],
)
def test_page_says_what_is_wrong_with_a_manifest(manifest: str, words: str) -> None:
    """In the command's words."""
    with pytest.raises(ManifestError, match=words):
        answers().read_simulation(manifest, "", [])


def test_page_of_an_archive_names_the_command_that_simulates() -> None:
    """The program that decides about an archive writes to a terminal."""
    with pytest.raises(UsageError, match="kubectl hami simulate --from FILE -f FILE"):
        answers("--from", "a.tar.gz").read_simulation(MANIFEST, "", [])

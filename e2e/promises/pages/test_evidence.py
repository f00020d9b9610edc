"""
The logs of a cluster outlive it when a test fails.
"""

from pathlib import Path

from harness import evidence


def test_logs_and_objects_are_copied_in_place_of_those_of_the_last_failure(tmp_path: Path) -> None:
    """Of a cluster of either kind; its other files stay where they are."""
    cluster, failed = tmp_path / "cluster", tmp_path / "failed"
    logs = ("logs/scheduler.log", "control/logs/etcd.log", "node-a/own/var/log/pods/u1/main/0.log", "apiserver/journal")
    for name in (*logs, "node-a/own/var/lib/kubelet/config", "tls/tls.key"):
        (cluster / name).parent.mkdir(parents=True, exist_ok=True)
        (cluster / name).write_text(name)
    (failed / "test_a.py-test_b-scheduler/logs").mkdir(parents=True)
    (failed / "test_a.py-test_b-scheduler/logs/earlier.log").touch()

    kept = evidence.keep(cluster, "test_a.py::test_b[scheduler]", failed)

    assert failed / "test_a.py-test_b-scheduler" == kept
    assert sorted(logs) == sorted(str(path.relative_to(kept)) for path in kept.rglob("*") if path.is_file())

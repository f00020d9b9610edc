"""
Prometheus and Alertmanager beside a cluster, as processes.

Owns their configs: `examples/neighbours/prometheus`, the chart's rules, and the addresses and shorter times of a test.
Must never change a query or a label.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

from harness.cluster import ROOT, Cluster
from testbed.ports import free_port
from testbed.processes import Supervisor
from testbed.waiting import NotInTimeError, eventually

EXAMPLE = ROOT / "examples/neighbours/prometheus/prometheus.yaml"
RULES = (ROOT / "charts/hami/alerts.yaml", ROOT / "charts/hami/usage-rules.yaml")
SCRAPE = "2s"
"""The services answer a client once a second, and the tests ask them too."""
EVALUATION = "1s"


def hurried(rules: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return *rules* with every `for` and `interval` shortened to EVALUATION, and nothing else changed."""
    groups = [
        {
            **group,
            **({"interval": EVALUATION} if "interval" in group else {}),
            "rules": [{**rule, **({"for": EVALUATION} if "for" in rule else {})} for rule in group["rules"]],
        }
        for group in rules["groups"]
    ]
    return {**rules, "groups": groups}


@dataclass
class Monitoring:
    """A running Prometheus, its Alertmanager, and whom that notifies."""

    url: str
    """Prometheus' address."""
    notifications: list[Mapping[str, Any]] = field(default_factory=list)
    """Each alert of each notification, as Alertmanager's webhooks have it, in the order of arrival."""

    async def query(self, promql: str) -> list[tuple[Mapping[str, str], float]]:
        """Return labels and value of each series now."""
        url, options = f"{self.url}/api/v1/query", {"query": promql}
        async with aiohttp.ClientSession() as session, session.get(url, params=options) as answer:
            found = await answer.json()
        assert found["status"] == "success", found
        return [(one["metric"], float(one["value"][1])) for one in found["data"]["result"]]

    def statuses(self, alert: str, **labels: str) -> list[str]:
        """Return `firing` and `resolved` of *alert* with *labels*, without repetitions, in the order of arrival."""
        found: list[str] = []
        for one in self.notifications:
            if {"alertname": alert, **labels}.items() <= one["labels"].items() and found[-1:] != [one["status"]]:
                found.append(one["status"])
        return found

    async def until(self, status: str, alert: str, seconds: float = 60, **labels: str) -> None:
        """Wait until the last notification of *alert* with *labels* has this *status*."""

        def is_so() -> bool:
            return self.statuses(alert, **labels)[-1:] == [status]

        await eventually(is_so, f"{alert} {labels} is {status}", seconds)


@asynccontextmanager
async def monitored(cluster: Cluster, folder: Path, prometheus: Path, alertmanager: Path) -> AsyncIterator[Monitoring]:
    """Run both programs during a block. It begins once every service of *cluster* was scraped."""
    ports = {name: free_port() for name in ("prometheus", "alertmanager", "receiver")}
    found = Monitoring(f"http://127.0.0.1:{ports['prometheus']}")
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(_scraped(cluster, folder, ports["alertmanager"])))
    (folder / "alertmanager.yaml").write_text(yaml.safe_dump(_notifying(ports["receiver"])))
    for rules in RULES:
        (folder / rules.name).write_text(yaml.safe_dump(hurried(yaml.safe_load(rules.read_text()))))
    programs = Supervisor(folder)
    async with _receiver(ports["receiver"], found.notifications):
        try:
            programs.start(
                "alertmanager",
                [
                    *(str(alertmanager), f"--config.file={folder / 'alertmanager.yaml'}"),
                    *(f"--storage.path={folder / 'alerts'}", "--cluster.listen-address="),
                    f"--web.listen-address=127.0.0.1:{ports['alertmanager']}",
                ],
            )
            programs.start(
                "prometheus",
                [
                    *(str(prometheus), f"--config.file={folder / 'prometheus.yaml'}"),
                    f"--storage.tsdb.path={folder / 'series'}",
                    f"--web.listen-address=127.0.0.1:{ports['prometheus']}",
                ],
            )
            await _all_scraped(found, cluster, programs)
            yield found
        finally:
            programs.stop()


async def _all_scraped(monitoring: Monitoring, cluster: Cluster, programs: Supervisor) -> None:
    """Wait until every service was scraped. Raises: NotInTimeError with the log of a program that ended."""

    async def probe() -> bool:
        for process in programs.processes.values():
            if not process.is_running:
                raise NotInTimeError(f"{process.name} ended; its log:\n{process.tail()}")
        return len(await monitoring.query("up == 1")) == 2 + 2 * len(cluster.nodes)

    await eventually(probe, "Prometheus scrapes every service", 60)


def _scraped(cluster: Cluster, folder: Path, alertmanager: int) -> Mapping[str, Any]:
    """Return the example with the addresses of this run, and with shorter times."""
    example = yaml.safe_load(EXAMPLE.read_text())
    [job] = example["scrape_configs"]
    [discovery] = job["kubernetes_sd_configs"]
    return {
        **example,
        "global": {"scrape_interval": SCRAPE, "evaluation_interval": EVALUATION},
        "scrape_configs": [
            {**job, "kubernetes_sd_configs": [{**discovery, "kubeconfig_file": str(cluster.kubeconfig)}]}
        ],
        "rule_files": [str(folder / rules.name) for rules in RULES],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{alertmanager}"]}]}]},
    }


def _notifying(receiver: int) -> Mapping[str, Any]:
    """Return a config that notifies of every alert at once."""
    route = {"receiver": "test", "group_by": ["..."], "group_wait": "0s", "group_interval": "1s"}
    return {
        "route": route,
        "receivers": [{"name": "test", "webhook_configs": [{"url": f"http://127.0.0.1:{receiver}/"}]}],
    }


@asynccontextmanager
async def _receiver(port: int, notifications: list[Mapping[str, Any]]) -> AsyncIterator[None]:
    """Append each alert that is sent to *port* to *notifications* during a block."""

    async def receive(request: web.Request) -> web.Response:
        notifications.extend((await request.json())["alerts"])
        return web.Response()

    application = web.Application()
    application.router.add_post("/", receive)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield
    finally:
        await runner.cleanup()

"""
Make the metric families of the book of device time.

What a row counts it keeps, so no value ever falls, and Prometheus never takes one for a counter that was reset.
Neighbours: `hami_monitor.decide.accounts.book` has the sums, `hami_monitor.serve.accounts` keeps them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from hami_monitor.decide.accounts.book import Book, DeviceAccount, ShareAccount
from hami_monitor.decide.observation import Labels
from hami_monitor.metrics.family import COUNTER, Family, named
from hamicommon.runtime.serving.samples import NamedLabels

POD: Labels = ("node", "namespace", "pod", "device_type")
NAMESPACE: Labels = ("node", "namespace", "device_type")
DEVICE: Labels = ("node", "device_uuid", "device_type")

DEVICE_FAMILIES: tuple[Family[DeviceAccount], ...] = (
    Family(
        "hami_device_offered_seconds",
        "Time in which the Node has offered the device: what was held, and what was idle.",
        lambda one: one.held_seconds + one.idle_seconds,
        COUNTER,
    ),
    Family(
        "hami_device_held_seconds",
        "Time of the device that Pods have held.",
        lambda one: one.held_seconds,
        COUNTER,
    ),
    Family(
        "hami_device_idle_seconds",
        "Time of the device that nobody has held.",
        lambda one: one.idle_seconds,
        COUNTER,
    ),
)


@dataclass(frozen=True)
class AccountStatus:
    """What a scrape shows of the book."""

    node_name: str = ""
    book: Book | None = None
    """None until one was saved."""
    failed_saves: int = 0

    @cached_property
    def families(self) -> list[Metric]:
        """The families of this status; they are the same for every scrape until the next save."""
        book, node = self.book or Book(0.0), self.node_name
        pods = [(named(POD, (node, *key)), one) for key, one in sorted(book.pods.items())]
        namespaces = [(named(NAMESPACE, (node, *key)), one) for key, one in sorted(book.namespaces.items())]
        devices = [(named(DEVICE, (node, uuid, one.type)), one) for uuid, one in sorted(book.devices.items())]
        return [
            *_share_families("share", "the Pod", POD, pods),
            *_share_families("namespace", "all Pods of the namespace", NAMESPACE, namespaces),
            *(family.of(DEVICE, devices) for family in DEVICE_FAMILIES),
            GaugeMetricFamily(
                "hami_monitor_accounts_timestamp_seconds",
                "Unix time up to which held, used and idle time is counted; 0 until that was saved once.",
                value=book.until_seconds,
            ),
            CounterMetricFamily(
                "hami_monitor_accounts_failed_saves",
                "Attempts to save the device time that failed; what is shown waits for the next one.",
                value=self.failed_saves,
            ),
        ]


def _share_families(
    subject: str, holder: str, labels: Labels, rows: Sequence[tuple[NamedLabels, ShareAccount]]
) -> Iterator[Metric]:
    """Yield what the *rows* of a *subject* have held and used; *holder* says who that is."""
    priced = f"by {holder}, priced by the larger of memory and compute."
    families: tuple[Family[ShareAccount], ...] = (
        Family(f"hami_{subject}_held_seconds", f"Device time held {priced}", lambda one: one.held_seconds, COUNTER),
        Family(f"hami_{subject}_used_seconds", f"Device time used {priced}", lambda one: one.used_seconds, COUNTER),
    )
    return (family.of(labels, rows) for family in families)

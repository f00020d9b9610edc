"""
Show an operator what becomes of this Node's MIG instances: metrics, log lines and Events of the Node.

A problem that lasts is logged and sent once, however often it is found. What the kubelet's own Event shows on a Pod, a
container that cannot start, is an Event of the Node too, because its cause is there.
Neighbours: `instances` reports, `decide.mig.offer` counts.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

import structlog

from hami_device_plugin.decide.mig.geometry import Gpu
from hami_device_plugin.decide.mig.journal import Entry, Journal
from hami_device_plugin.decide.mig.offer import Offer, counts
from hami_device_plugin.decide.mig.repair import described
from hami_device_plugin.metrics import Metrics
from hamicommon.errors import HamiError

NOT_READY = "MIGNotReady"
SWITCHED_ON = "MIGSwitchedOn"
NOT_CREATED = "MIGInstanceNotCreated"
NOT_DESTROYED = "MIGInstanceNotDestroyed"

_DONE = {
    "create": "Created a MIG instance",
    "adopt": "Adopted a MIG instance",
    "forget": "Forgot a MIG instance",
    "destroy": "Destroyed a MIG instance",
    "clear": "Destroyed an unused MIG instance",
}

logger = structlog.get_logger()


class SendEvent(Protocol):
    """Sends an Event of the Node soon; *about* is the UUID of the GPU it is about."""

    def __call__(self, reason: str, message: str, *, is_warning: bool = False, about: str = "") -> None:
        """Send it."""


class MigReports:
    """The reports of one session."""

    def __init__(self, metrics: Metrics, send: SendEvent) -> None:
        """Count in *metrics*, and *send* Events."""
        self._metrics = metrics
        self._send = send
        self._said: dict[str, frozenset[str]] = {}
        """The last problems of each topic."""
        self._not_ready: Mapping[str, str] = {}
        """The last problem of each GPU, by UUID."""
        self._not_destroyed: dict[tuple[str, int, int], str] = {}
        """The last problem of each place, by the key of its entry."""

    def show(self, offers: Mapping[str, Offer], journal: Journal) -> None:
        """Show the present instances."""
        self._metrics.show_mig_instances(counts(offers, journal))

    def hide(self) -> None:
        """Show no instances, because nothing keeps the numbers up to date any more."""
        self._metrics.show_mig_instances({})

    def changed(self, change: str, instance: str, because: str = "") -> None:
        """Report a *change* of an *instance*: `create`, `adopt`, `forget`, `destroy` or `clear`."""
        self._count(change)
        logger.info(_DONE[change], instance=instance, **({"because": because} if because else {}))

    def switched_on(self, gpu: Gpu) -> None:
        """Report that MIG is on now."""
        self._count("switch-on")
        logger.info("Switched MIG on", gpu=str(gpu))
        self._send(SWITCHED_ON, f"MIG is on now for {gpu}", about=gpu.uuid)

    def failed(self, change: str, *, is_refused: bool = False) -> None:
        """Count a *change* that failed; *is_refused* says that the plugin or a condition of the Node forbids it."""
        self._count(change, "refused" if is_refused else "error")

    def not_created(self, container: str, error: HamiError) -> None:
        """Report that *container*, a Pod and its container, gets no instance now."""
        self._send(NOT_CREATED, f"{container} gets no MIG instance: {error}", is_warning=True)

    def not_destroyed(self, entry: Entry, reason: str, error: HamiError) -> None:
        """Report that an instance cannot be destroyed, although there is a *reason* to."""
        self.failed("destroy")
        topic, problem = "A MIG instance cannot be destroyed yet", f"{described(entry)}, although {reason}: {error}"
        if self._not_destroyed.get(entry.key) != problem:
            logger.warning(topic, problem=problem)
            self._send(NOT_DESTROYED, f"{topic}: {problem}", is_warning=True)
        self._not_destroyed[entry.key] = problem

    def left_alone(self, problems: Iterable[str]) -> None:
        """Report the instances that are unclear and therefore stay."""
        for problem in self._say("A MIG instance is left alone", problems):
            self.failed("repair", is_refused=True)
            self._send(NOT_DESTROYED, f"A MIG instance is left alone: {problem}", is_warning=True)

    def not_ready(self, problems: Mapping[str, str]) -> None:
        """Report why GPUs are not offered, by UUID."""
        for uuid, problem in problems.items():
            if self._not_ready.get(uuid) != problem:
                logger.warning("A GPU is not offered", problem=problem)
                self._send(NOT_READY, f"No MIG instances are offered of {problem}", is_warning=True, about=uuid)
        self._not_ready = dict(problems)

    def not_up_to_date(self, error: HamiError) -> None:
        """Log that the instances cannot be looked at."""
        self._say("MIG instances are not up to date", [str(error)])

    def _count(self, change: str, result: str = "ok") -> None:
        self._metrics.mig_changes.labels(change, result).inc()

    def _say(self, topic: str, problems: Iterable[str]) -> list[str]:
        """Log those of *problems* that are new, and return them; *problems* replace the last ones of *topic*."""
        now = frozenset(problems)
        new = sorted(now - self._said.get(topic, frozenset()))
        for problem in new:
            logger.warning(topic, problem=problem)
        self._said[topic] = now
        return new

"""
Show one Pod's whole life, and many more, on the embedded cluster: `make demo`.

Applies the manifests of `examples/`, prints what happens as it happens, and holds each thing it shows to a promise:
the exit status is non-zero if one of them did not hold. Neighbours: `cluster` runs everything, `screen` prints,
`invariants` has the last word.
"""

import argparse
import asyncio
import os
import re
import shutil
import signal
import string
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from hamicommon.model import Device, Share
from hamicommon.wire.pod_devices import decode_pod_devices, shares_by_container
from harness.cluster import ROOT, Cluster, NotInTimeError, eventually
from harness.embedded import EmbeddedCluster, sweep
from harness.invariants import ALLOCATED, MIB, broken, inventory, look, samples
from harness.screen import Screen
from minicluster.client import Object
from testbed.folders import FolderInUseError, claimed
from testbed.hardware import TWO_NODES

EXAMPLES = ROOT / "examples"
FOLDER = Path(f"/tmp/hami-demo-{os.getuid()}")
"""Short, because a Unix socket's path may have 107 bytes."""
INTERRUPTED = 130
"""The exit status of a program that Ctrl-C ended."""
BUSY_SETTLES_SECONDS = 2
BUSY_SECONDS = 5
BUSY_TOLERANCE = 3.0
"""Points; a machine whose own processors are busy launches late now and then."""
COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "red", "bright_cyan", "bright_green", "bright_yellow")


@dataclass(frozen=True)
class Placed:
    """One container's share as granted, and where."""

    pod: str
    container: str
    node: str
    share: Share

    @property
    def cores(self) -> str:
        """The part of the device's time that was asked for."""
        return f"{self.share.core_percent} %" if self.share.core_percent else "–"


def placed(pod: Object) -> list[Placed]:
    """Return what a bound Pod's containers were granted, init containers first."""
    spec = pod["spec"]
    names = [container["name"] for container in [*spec.get("initContainers", []), *spec["containers"]]]
    granted = shares_by_container(decode_pod_devices(pod["metadata"]["annotations"][ALLOCATED]), len(names))
    return [
        Placed(pod["metadata"]["name"], name, spec["nodeName"], share)
        for name, shares in zip(names, granted, strict=True)
        for share in shares
    ]


class Demo:
    """The chapters, in order; each leaves its Pods for the next."""

    def __init__(self, cluster: Cluster, screen: Screen) -> None:
        self.cluster = cluster
        self.screen = screen
        self.letters: dict[str, str] = {}
        self.devices: dict[str, Device] = {}

    async def run(self) -> None:
        """Play all chapters."""
        await self.the_hardware()
        await self.three_shares()
        await self.seen_from_inside()
        await self.other_shapes()
        await self.refused_beyond_share()
        await self.measured()
        await self.held_to_a_share_of_time()
        await self.waits_for_room()
        await self.invariants_hold()

    async def the_hardware(self) -> None:
        """What the Nodes offer."""
        self.screen.heading("Two nodes, four devices")
        offered = inventory(await look(self.cluster))
        rows = []
        for node, devices in sorted(offered.items()):
            for device in devices.values():
                self.devices[device.id] = device
                rows.append(
                    (node, str(device.index), device.type, f"{device.memory_mib} MiB", str(device.count), device.id)
                )
        columns = ("node", "device", "model", ">memory", ">replicas", "uuid")
        shown = len(columns) - self.screen.is_narrow
        self.screen.table(columns[:shown], [row[:shown] for row in rows])

    async def place(self, *manifests: str) -> list[Placed]:
        """Apply manifests, show each container's share as its Pod starts to run, and return the shares."""
        began = time.monotonic()
        made = [pod["metadata"]["name"] for name in manifests for pod in await self.cluster.apply(EXAMPLES / name)]
        heads = (
            ("Pod", 15),
            ("container", 9),
            ("node", 6),
            ("device", 6),
            (">memory", 9),
            (">cores", 5),
            (">runs after", 10),
        )
        self.screen.row([("", 1), *heads], style="dim")
        shares: list[Placed] = []
        for name in made:
            pod = await self.cluster.pod_in_phase(name, "Running")
            after = f"{time.monotonic() - began:.1f} s"
            for row in placed(pod):
                shares.append(row)
                letter = self.letters.setdefault(row.pod, string.ascii_lowercase[len(self.letters)])
                cells = (row.pod, row.container, row.node, str(self.devices[row.share.uuid].index))
                amounts = (f">{row.share.memory_mib} MiB", f">{row.cores}", f">{after}")
                widths = [width for _, width in heads]
                mark = Text(letter, style=self.colour(letter))
                self.screen.row([(mark, 1), *zip((*cells, *amounts), widths, strict=True)])
        return shares

    @staticmethod
    def colour(letter: str) -> str:
        """Return the colour of a Pod's letter."""
        return COLOURS[(ord(letter) - ord("a")) % len(COLOURS)]

    async def three_shares(self) -> None:
        """Three Pods, as a Deployment would make them."""
        self.screen.heading("Three Pods ask for nvidia.com/gpu: 1, gpumem: 3000, gpucores: 25")
        shares = await self.place("share-a-gpu/pods.yaml")
        granted = [(row.share.memory_mib, row.share.core_percent) for row in shares]
        self.screen.promise("each got exactly 3000 MiB and 25 %", granted == [(3000, 25)] * 3)

    async def seen_from_inside(self) -> None:
        """What `nvidia-smi` would print in the container."""
        self.screen.heading("What the container of share-1 sees")
        await self.cluster.log_line("allocated", "share-1")
        lines = (await self.cluster.log("share-1")).splitlines()
        for line in lines:
            self.screen.console.print(Text(f"  {line}"), no_wrap=True)
        size = any("3000 MiB" in line for line in lines) and not any(
            "40960" in line or "16384" in line for line in lines
        )
        self.screen.promise("one device of 3000 MiB, whatever the card's size", size)

    async def other_shapes(self) -> None:
        """A percentage, two devices, many containers."""
        self.screen.heading("Half of a device, two devices, three containers with shares of their own")
        shares = await self.place("memory-percentage/pod.yaml", "two-devices/pod.yaml", "many-containers/pod.yaml")
        half = next(row for row in shares if row.pod == "half-of-one")
        expected = self.devices[half.share.uuid].memory_mib // 2
        self.screen.promise(f"50 % of this device is {expected} MiB", half.share.memory_mib == expected)
        two = {row.share.uuid for row in shares if row.pod == "two-devices"}
        self.screen.promise("two different devices in one container", len(two) == 2)
        many = [row.container for row in shares if row.pod == "many-containers"]
        self.screen.promise(
            "each container of a Pod has its own share, and proxy has none", many == ["warm-up", "train", "serve"]
        )

    async def refused_beyond_share(self) -> None:
        """One asks the driver for too much; its neighbours go on."""
        self.screen.heading("A container asks the driver for more than its share")
        before = await self.cluster.pod_in_phase("share-1", "Running")
        await self.place("refused-beyond-share/pod.yaml")
        line = await self.cluster.log_line("CUDA_ERROR", "greedy")
        self.screen.console.print(Text(f"  greedy: {line}"))
        self.screen.promise("the driver's answer is CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_OUT_OF_MEMORY" in line)
        greedy = await self.cluster.pod_in_phase("greedy", "Running")
        after = await self.cluster.pod_in_phase("share-1", "Running")
        restarts = [pod["status"]["containerStatuses"][0]["restartCount"] for pod in (greedy, after)]
        started = [pod["status"]["containerStatuses"][0]["state"]["running"] for pod in (before, after)]
        self.screen.promise("it goes on with what it has, and so does its neighbour", restarts == [0, 0])
        self.screen.promise("the neighbour was never touched", started[0] == started[1])

    async def measured(self) -> None:
        """What the monitors export."""
        self.screen.heading("What the monitors measure")
        usage: dict[tuple[str, str, str], tuple[float, float]] = {}

        async def all_seen() -> bool:
            usage.clear()
            for node in self.cluster.nodes:
                scrape = samples(await self.cluster.metrics(f"monitor-{node.name}"))
                limits = {
                    tuple(sorted(labels.items())): value for labels, value in scrape["hami_vgpu_memory_limit_bytes"]
                }
                for labels, used in scrape["hami_vgpu_memory_used_bytes"]:
                    key = labels["pod"], labels["container"], labels["device_uuid"]
                    usage[key] = used / MIB, limits[tuple(sorted(labels.items()))] / MIB
            return len(usage) >= len(self.letters) and all(used > 0 for used, _ in usage.values())

        await eventually(all_seen, "the monitors show what every container uses")
        rows = [
            (pod, container, self.where(uuid), f"{used:.0f} MiB", f"{limit:.0f} MiB", self.gauge(used, limit, pod))
            for (pod, container, uuid), (used, limit) in sorted(usage.items())
        ]
        self.screen.table(("Pod", "container", "device", ">used", ">limit", ""), rows)
        first = next((used, limit) for (pod, _, _), (used, limit) in usage.items() if pod == "share-1")
        self.screen.promise("share-1 uses 2000 of its 3000 MiB", first[0] >= 2000 and first[1] == 3000)
        self.screen.promise("nobody is beyond its limit", all(used <= limit for used, limit in usage.values()))
        await self.picture()

    def where(self, uuid: str) -> str:
        """Return `node/index` of a device."""
        node = next(node.name for node in self.cluster.nodes if uuid in {gpu.uuid for gpu in node.gpus})
        return f"{node}/{self.devices[uuid].index}"

    def gauge(self, used: float, limit: float, pod: str) -> Text:
        """Return a bar of *used* of *limit*."""
        columns = 16 if self.screen.is_narrow else 24
        full = round(columns * min(used / limit, 1)) if limit else 0
        return Text("█" * full, style=self.colour(self.letters[pod])) + Text("░" * (columns - full), style="dim")

    async def picture(self) -> None:
        """Draw every device with the shares on it."""
        self.screen.heading("Who has what")
        pods, _ = await self.cluster.api.list("/api/v1/pods")
        shares = [row for pod in pods if ALLOCATED in pod["metadata"].get("annotations", {}) for row in placed(pod)]
        rows = []
        whole = 32 if self.screen.is_narrow else 48
        for uuid, device in self.devices.items():
            bar, promised_mib, promised_percent = Text(), 0, 0
            for row in shares:
                if row.share.uuid != uuid or row.container == "warm-up":
                    continue
                letter = self.letters[row.pod]
                columns = max(1, round(whole * row.share.memory_mib / device.memory_mib))
                bar.append(letter * columns, style=f"reverse {self.colour(letter)}")
                promised_mib += row.share.memory_mib
                promised_percent += row.share.core_percent
            bar.append("·" * max(0, whole - len(bar)), style="dim")
            rows.append(
                (self.where(uuid), bar, f"{promised_mib} of {device.memory_mib} MiB", f"{promised_percent} % of cores")
            )
        self.screen.table(("device", "memory", ">promised", ">"), rows)

    async def held_to_a_share_of_time(self) -> None:
        """One is limited, the other is not; both launch all they can."""
        self.screen.heading("30 % of a device's time, beside one who takes what is left")
        shares = await self.place("gpu-time/pods.yaml")
        busy = {row.pod: await self.busy_percent(row.pod) for row in shares}
        self.screen.table(
            ("Pod", "device", ">asked for", f">had in {BUSY_SECONDS} s", ""),
            [
                (row.pod, self.where(row.share.uuid), row.cores, f"{percent:.1f} %", self.gauge(percent, 100, row.pod))
                for row, percent in zip(shares, busy.values(), strict=True)
            ],
        )
        held, free = busy["held"], busy["free"]
        self.screen.promise("both are on the same device", len({row.share.uuid for row in shares}) == 1)
        self.screen.promise("one is held to its 30 % of the time", abs(held - 30) <= BUSY_TOLERANCE)
        self.screen.promise("the other has more, and together they have no more than all", held < free <= 101 - held)
        for row in shares:
            await self.cluster.delete_pod(row.pod)

    async def busy_percent(self, pod: str) -> float:
        """Return how much of BUSY_SECONDS a Pod's kernels ran, once it has been at it for a moment."""

        async def reported() -> list[float]:
            found = [float(percent) for percent in re.findall(r"^busy ([\d.]+) %$", await self.cluster.log(pod), re.M)]
            return found[BUSY_SETTLES_SECONDS:] if len(found) >= BUSY_SETTLES_SECONDS + BUSY_SECONDS else []

        seconds = await eventually(reported, f"{pod} reports how busy it is")
        return sum(seconds[:BUSY_SECONDS]) / BUSY_SECONDS

    async def waits_for_room(self) -> None:
        """One that fits nowhere says why, and starts when room appears."""
        self.screen.heading("A Pod that fits nowhere says why, and starts when room appears")
        await self.place("waits-for-room/resident.yaml")
        await self.cluster.apply(EXAMPLES / "waits-for-room/large.yaml")

        async def reasons() -> list[Object]:
            found = await self.cluster.events("large")
            return [event for event in found if event["reason"] == "FilteringFailed"]

        events = await eventually(reasons, "large has an Event that says why it waits")
        pod = await self.cluster.pod("large")
        self.screen.note(f"large is {pod['status']['phase']}")
        for event in events:
            self.screen.paragraph(Text(" " * 11), f"{event['reason']}: {event['message']}")
        text = " ".join(event["message"] for event in events)
        self.screen.promise("its Event names HAMi's reason", "CardInsufficientMemory" in text)
        await self.cluster.delete_pod("resident")
        freed = time.monotonic()
        self.screen.note("resident is gone")
        pod = await self.cluster.pod_in_phase("large", "Running")
        seconds = time.monotonic() - freed
        self.screen.note(f"large runs on {pod['spec']['nodeName']}, {seconds:.1f} s after room appeared")
        self.screen.promise("it runs as soon as room appears", seconds < 5)

    async def invariants_hold(self) -> None:
        """Everything the services and the API server say agrees."""
        self.screen.heading("At rest")

        async def at_rest() -> bool:
            return not await broken(self.cluster)

        try:
            await eventually(at_rest, "the invariants hold", 10)
        except NotInTimeError:
            for sentence in await broken(self.cluster):
                self.screen.promise(sentence, False)
        else:
            self.screen.promise("no device is promised beyond itself, and every container got what was granted", True)
            self.screen.promise("scheduler, API server, containers and monitors say the same", True)


async def show(cluster: EmbeddedCluster, screen: Screen) -> None:
    """Bring *cluster* up and play all chapters; what is not there in time is a promise that did not hold."""
    try:
        screen.heading("Starting the cluster: every part a process of its own")
        await cluster.start(screen.note)
        screen.note("up")
        await Demo(cluster, screen).run()
    except NotInTimeError as error:
        screen.promise(str(error), False)


async def play(screen: Screen, folder: Path, keep: bool) -> None:
    """
    Show everything on a cluster in *folder*, and take it down again unless it is to be kept.

    Raises: CancelledError after a signal to stop, when all is taken down.
    """
    if ended := sweep(folder):
        screen.note(f"ended {len(ended)} processes of an earlier run")
    playing = asyncio.current_task()
    assert playing is not None
    on_stop_signal(playing.cancel)
    cluster = EmbeddedCluster(folder, TWO_NODES, outlives_us=keep)
    has_ended = False
    try:
        await show(cluster, screen)
        has_ended = True
    finally:
        on_stop_signal(lambda: None)
        if keep and has_ended:
            await cluster.leave()
        else:
            await cluster.stop()
            shutil.rmtree(folder, ignore_errors=True)


def on_stop_signal(call: Callable[[], object]) -> None:
    """Have *call* called when somebody wants this process to stop, in place of what was called before."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, call)


def farewell(screen: Screen, folder: Path, keep: bool) -> int:
    """Print the sum and how to go on, and return the exit status."""
    failed = [text for holds, text in screen.promises if not holds]
    screen.console.print()
    seconds = time.monotonic() - screen.started
    kept = len(screen.promises) - len(failed)
    style = "bold red" if failed else "bold green"
    screen.console.print(Text(f"{kept} of {len(screen.promises)} promises held, in {seconds:.0f} s", style=style))
    for text in failed:
        screen.console.print(Text(f"  ✗ {text}", style="red"))
    if keep:
        screen.console.print("\nThe cluster is still up:")
        screen.console.print(f"  kubectl --kubeconfig {folder}/kubeconfig get pods,nodes", soft_wrap=True)
        screen.console.print(f"  ls {folder}/logs", soft_wrap=True)
        screen.console.print("  make down")
    return 1 if failed or not screen.promises else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--keep", action="store_true", help="leave the cluster up afterwards")
    parser.add_argument("--down", action="store_true", help="end a cluster that was kept, and do nothing else")
    parser.add_argument("--picture", type=Path, help="write what was printed to this SVG file as well")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where all files are (default %(default)s)")
    arguments = parser.parse_args()
    try:
        with claimed(arguments.folder):
            return take_down(arguments.folder) if arguments.down else demonstrate(arguments)
    except FolderInUseError as error:
        sys.exit(f"demo: {error}")


def take_down(folder: Path) -> int:
    """End a cluster that was kept in *folder*, and return the exit status."""
    ended = sweep(folder)
    shutil.rmtree(folder, ignore_errors=True)
    print(f"ended {len(ended)} processes" if ended else "nothing was up")
    return 0


def demonstrate(arguments: argparse.Namespace) -> int:
    """Play the demo as the flags say, and return the exit status."""
    screen = Screen.of_stdout(is_recorded=arguments.picture is not None)
    try:
        asyncio.run(play(screen, arguments.folder, arguments.keep))
    except asyncio.CancelledError:
        print("\nstopped; all that was started is ended")
        return INTERRUPTED
    status = farewell(screen, arguments.folder, arguments.keep)
    if arguments.picture:
        picture = screen.console.export_svg(title="make demo")
        # The viewer's own monospace font, instead of one fetched from elsewhere.
        arguments.picture.write_text(re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL))
    return status


if __name__ == "__main__":
    sys.exit(main())

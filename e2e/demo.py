"""
Run Pods through their whole life on the embedded cluster and show each step: `make demo`.

Applies manifests of `examples/share`, prints what happens, and checks a promise about each step. The exit status is 1
if a promise did not hold. Neighbours: `harness.clusters.embedded` runs the cluster, `harness.screen` prints,
`harness.invariants` makes the final check.
"""

import argparse
import asyncio
import hashlib
import os
import re
import shutil
import signal
import string
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from rich.text import Text

from hamicommon.model import Device, Object, Share
from hamicommon.pod.reading import read_pod
from harness.client import PROGRAM, asked, asked_json
from harness.cluster import ALLOCATED, ROOT, Cluster
from harness.clusters.embedded import EmbeddedCluster, sweep
from harness.invariants import MIB, broken, inventory, look, samples
from harness.screen import Screen
from testbed.driver.hardware import TWO_NODES
from testbed.folders import FolderInUseError, claimed
from testbed.processes import take_over
from testbed.waiting import NotInTimeError, eventually

EXAMPLES = ROOT / "examples/share"


def folder_of(checkout: Path) -> Path:
    """Return the folder of a checkout's demo. It is short, because the path of a Unix socket may have 107 bytes."""
    return Path(f"/tmp/hami-demo-{os.getuid()}-{hashlib.sha256(bytes(checkout)).hexdigest()[:8]}")


FOLDER = folder_of(ROOT)
LINK = ROOT / "build/demo"
"""Where this checkout finds FOLDER."""
INTERRUPTED = 130
"""The exit status of a program that Ctrl-C ended."""
BUSY_SETTLES_SECONDS = 2
BUSY_SECONDS = 5
BUSY_TOLERANCE = 3.0
"""Percentage points. On a busy machine some launches are late."""
COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "red", "bright_cyan", "bright_green", "bright_yellow")


@dataclass(frozen=True)
class Placed:
    """A container's share of one device."""

    pod: str
    container: str
    node: str
    share: Share

    @property
    def cores(self) -> str:
        """The requested part of the device's time."""
        return f"{self.share.core_percent} %" if self.share.core_percent else "–"


def placed(pod: Object) -> list[Placed]:
    """Return the shares of a bound Pod, those of init containers first."""
    spec = pod["spec"]
    names = [container["name"] for container in [*spec.get("initContainers", []), *spec["containers"]]]
    granted = read_pod(pod).granted(ALLOCATED).shares
    return [
        Placed(pod["metadata"]["name"], name, spec["nodeName"], share)
        for name, shares in zip(names, granted, strict=True)
        for share in shares
    ]


class Demo:
    """The steps, in order. Each leaves its Pods for the next."""

    def __init__(self, cluster: Cluster, screen: Screen) -> None:
        self.cluster = cluster
        self.screen = screen
        self.letters: dict[str, str] = {}
        self.devices: dict[str, Device] = {}

    async def run(self) -> None:
        """Run all steps."""
        await self.show_devices()
        await self.share_a_device()
        await self.look_inside_a_container()
        await self.place_other_requests()
        await self.exceed_a_share()
        await self.read_the_monitors()
        await self.limit_gpu_time()
        await self.wait_for_memory()
        await self.leave_a_story()
        await self.check_invariants()

    async def show_devices(self) -> None:
        """Show the devices that the Nodes offer."""
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
        """Apply *manifests*, show each share once its Pod runs, and return the shares."""
        began = time.monotonic()
        made = [pod["metadata"]["name"] for name in manifests for pod in await self.cluster.apply(EXAMPLES / name)]
        heads = (
            ("Pod", 15),
            ("container", 9),
            ("node", 6),
            ("device", 6),
            (">memory", 9),
            (">cores", 5),
            (">started in", 10),
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
        """Return the colour of the Pod with this letter."""
        return COLOURS[(ord(letter) - ord("a")) % len(COLOURS)]

    async def share_a_device(self) -> None:
        """Place three Pods, as a Deployment would make them."""
        self.screen.heading("Three Pods request nvidia.com/gpu: 1, gpumem: 3000, gpucores: 25")
        shares = await self.place("share-a-gpu/pods.yaml")
        granted = [(row.share.memory_mib, row.share.core_percent) for row in shares]
        self.screen.promise("each Pod got exactly 3000 MiB and 25 % of the cores", granted == [(3000, 25)] * 3)

    async def look_inside_a_container(self) -> None:
        """Show what `nvidia-smi` would print in the container."""
        self.screen.heading("The device, as the container of share-1 sees it")
        await self.cluster.log_line("allocated", "share-1")
        lines = (await self.cluster.log("share-1")).splitlines()
        for line in lines:
            self.screen.console.print(Text(f"  {line}"), no_wrap=True)
        size = any("3000 MiB" in line for line in lines) and not any(
            "40960" in line or "16384" in line for line in lines
        )
        self.screen.promise("it sees one device of 3000 MiB, whatever the size of the card", size)

    async def place_other_requests(self) -> None:
        """Place a percentage, two devices, several containers."""
        self.screen.heading("Half of a device, two devices, one share for each container")
        shares = await self.place("memory-percentage/pod.yaml", "two-devices/pod.yaml", "many-containers/pod.yaml")
        half = next(row for row in shares if row.pod == "half-of-one")
        expected = self.devices[half.share.uuid].memory_mib // 2
        self.screen.promise(f"half-of-one got 50 % of its device, {expected} MiB", half.share.memory_mib == expected)
        two = {row.share.uuid for row in shares if row.pod == "two-devices"}
        self.screen.promise("two-devices got two different devices", len(two) == 2)
        many = [row.container for row in shares if row.pod == "many-containers"]
        self.screen.promise(
            "each container of many-containers got its share; proxy requested none",
            many == ["warm-up", "train", "serve"],
        )

    async def exceed_a_share(self) -> None:
        """Allocate more than a share. The neighbours keep running."""
        self.screen.heading("A container allocates more memory than its share")
        before = await self.cluster.pod_in_phase("share-1", "Running")
        await self.place("refused-beyond-share/pod.yaml")
        line = await self.cluster.log_line("CUDA_ERROR", "greedy")
        self.screen.console.print(Text(f"  greedy: {line}"))
        self.screen.promise("the allocation fails with CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_OUT_OF_MEMORY" in line)
        greedy = await self.cluster.pod_in_phase("greedy", "Running")
        after = await self.cluster.pod_in_phase("share-1", "Running")
        restarts = [pod["status"]["containerStatuses"][0]["restartCount"] for pod in (greedy, after)]
        started = [pod["status"]["containerStatuses"][0]["state"]["running"] for pod in (before, after)]
        self.screen.promise("greedy and its neighbour share-1 keep running", restarts == [0, 0])
        self.screen.promise("the container of share-1 is still the same", started[0] == started[1])

    async def read_the_monitors(self) -> None:
        """Show the usage that the monitors export."""
        self.screen.heading("Memory in use, as the monitors export it")
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

        await eventually(all_seen, "the monitors export the usage of every container")
        rows = [
            (pod, container, self.where(uuid), f"{used:.0f} MiB", f"{limit:.0f} MiB", self.gauge(used, limit, pod))
            for (pod, container, uuid), (used, limit) in sorted(usage.items())
        ]
        self.screen.table(("Pod", "container", "device", ">used", ">limit", ""), rows)
        first = next((used, limit) for (pod, _, _), (used, limit) in usage.items() if pod == "share-1")
        self.screen.promise("share-1 uses 2000 of its 3000 MiB", first[0] >= 2000 and first[1] == 3000)
        self.screen.promise("no container exceeds its limit", all(used <= limit for used, limit in usage.values()))
        await self.draw_devices()
        await self.ask_with_one_command(usage.keys())

    def where(self, uuid: str) -> str:
        """Return `node/index` of a device."""
        node = next(node.name for node in self.cluster.nodes if uuid in {gpu.uuid for gpu in node.gpus})
        return f"{node}/{self.devices[uuid].index}"

    def gauge(self, used: float, limit: float, pod: str) -> Text:
        """Return a bar of *used* of *limit*."""
        columns = 16 if self.screen.is_narrow else 24
        full = round(columns * min(used / limit, 1)) if limit else 0
        return Text("█" * full, style=self.colour(self.letters[pod])) + Text("░" * (columns - full), style="dim")

    async def draw_devices(self) -> None:
        """Draw every device with its shares."""
        self.screen.heading("The shares on each device")
        pods, _ = await self.cluster.api.list("/api/v1/pods")
        shares = [row for pod in pods if ALLOCATED in pod["metadata"].get("annotations", {}) for row in placed(pod)]
        rows = []
        whole = 32 if self.screen.is_narrow else 48
        for uuid, device in self.devices.items():
            bar, allocated_mib, allocated_percent = Text(), 0, 0
            for row in shares:
                if row.share.uuid != uuid or row.container == "warm-up":
                    continue
                letter = self.letters[row.pod]
                columns = max(1, round(whole * row.share.memory_mib / device.memory_mib))
                bar.append(letter * columns, style=f"reverse {self.colour(letter)}")
                allocated_mib += row.share.memory_mib
                allocated_percent += row.share.core_percent
            bar.append("·" * max(0, whole - len(bar)), style="dim")
            memory, cores = f"{allocated_mib} of {device.memory_mib} MiB", f"{allocated_percent} % of cores"
            rows.append((self.where(uuid), bar, memory, cores))
        self.screen.table(("device", "memory", ">allocated", ">"), rows)

    async def ask_with_one_command(self, measured: Iterable[tuple[str, str, str]]) -> None:
        """Print what `kubectl hami top pods` prints, which must have all that the monitors have *measured*."""
        self.screen.heading("The same in one command: kubectl hami top pods")
        answer = await asked(self.cluster, "top", "pods")
        for line in (answer.output + answer.errors).splitlines():
            self.screen.console.print(Text(f"  {line}"), no_wrap=True, overflow="ellipsis")
        shares = {
            (share["pod"], share["container"], device["id"])
            for device, share in await self.shares()
            if share["usedMemoryMib"] is not None
        }
        self.screen.promise("it shows the use of every container that the monitors measured", shares >= set(measured))

    async def ask(self, command: str) -> Object:
        """Return what `kubectl hami` answers about this cluster."""
        [cluster] = (await asked_json(self.cluster, command))["clusters"]
        return dict(cluster)

    async def shares(self) -> list[tuple[Object, Object]]:
        """Return each share, after its device, as `kubectl hami top` has them."""
        devices = [device for node in (await self.ask("top"))["nodes"] for device in node["devices"]]
        return [(device, share) for device in devices for share in device["shares"]]

    async def limit_gpu_time(self) -> None:
        """Run a limited and an unlimited Pod. Both launch as many kernels as they can."""
        self.screen.heading("GPU time: one Pod limited to 30 %, one without a limit")
        shares = await self.place("gpu-time/pods.yaml")
        busy = {row.pod: await self.busy_percent(row.pod) for row in shares}
        self.screen.table(
            ("Pod", "device", ">requested", f">used in {BUSY_SECONDS} s", ""),
            [
                (row.pod, self.where(row.share.uuid), row.cores, f"{percent:.1f} %", self.gauge(percent, 100, row.pod))
                for row, percent in zip(shares, busy.values(), strict=True)
            ],
        )
        held, free = busy["held"], busy["free"]
        self.screen.promise("both Pods run on the same device", len({row.share.uuid for row in shares}) == 1)
        self.screen.promise("the limited Pod used 30 % of the time", abs(held - 30) <= BUSY_TOLERANCE)
        self.screen.promise("the other used more, and both together at most 100 %", held < free <= 101 - held)

    async def busy_percent(self, pod: str) -> float:
        """Return the part of BUSY_SECONDS in which a Pod's kernels ran, after BUSY_SETTLES_SECONDS."""

        async def reported() -> list[float]:
            found = [float(percent) for percent in re.findall(r"^busy ([\d.]+) %$", await self.cluster.log(pod), re.M)]
            return found[BUSY_SETTLES_SECONDS:] if len(found) >= BUSY_SETTLES_SECONDS + BUSY_SECONDS else []

        seconds = await eventually(reported, f"{pod} reports how busy it is")
        return sum(seconds[:BUSY_SECONDS]) / BUSY_SECONDS

    async def wait_for_memory(self) -> None:
        """Create a Pod that fits on no Node, then free memory for it."""
        self.screen.heading("A Pod that fits on no Node says why, and starts once memory is free")
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
        self.screen.promise("its Event has HAMi's reason, CardInsufficientMemory", "CardInsufficientMemory" in text)
        await self.cluster.delete_pod("resident")
        freed = time.monotonic()
        self.screen.note("resident is deleted")
        pod = await self.cluster.pod_in_phase("large", "Running")
        seconds = time.monotonic() - freed
        self.screen.note(f"large runs on {pod['spec']['nodeName']}, {seconds:.1f} s later")
        self.screen.promise("it started within 5 s of that", seconds < 5)

    async def leave_a_story(self) -> None:
        """Leave a Pod that waits, one that is throttled and one that is idle, as the client must say."""
        self.screen.heading("What is left: one Pod waits, one is throttled, one is idle")
        await self.place("idle/pod.yaml")
        await self.cluster.apply(EXAMPLES / "waits-for-room/resident.yaml")

        async def waiting() -> list[Object]:
            found: list[Object] = [row for row in (await self.ask("waiting"))["waiting"] if "help" in row]
            return found

        async def shares() -> dict[str, Object]:
            found = {share["pod"]: share for _, share in await self.shares()}
            return found if found["notebook"]["usedMemoryMib"] is not None else {}

        [row] = await eventually(waiting, "a Pod waits, with what would help it")
        share = await eventually(shares, "notebook is measured")
        change = row["help"]["changes"][-1]
        self.screen.note(f"{row['pod']['pod']} waits. It would fit {change}")
        self.screen.promise("resident waits until large ends", "default/large ends" in change)
        seconds = share["held"]["throttledSeconds"]
        self.screen.promise("held is throttled", seconds is not None and seconds > 0)
        self.screen.promise("notebook is idle", share["notebook"]["usedMemoryMib"] == 0)

    async def check_invariants(self) -> None:
        """Check that the services, the API server and the containers agree."""
        self.screen.heading("Final check")

        async def at_rest() -> bool:
            return not await broken(self.cluster)

        try:
            await eventually(at_rest, "the invariants hold", 10)
        except NotInTimeError:
            for sentence in await broken(self.cluster):
                self.screen.promise(sentence, False)
        else:
            self.screen.promise("no device is over its capacity, and every container got its share", True)
            self.screen.promise("scheduler, API server, containers and monitors agree", True)


async def show(cluster: EmbeddedCluster, screen: Screen) -> None:
    """Start *cluster* and run the demo on it. A time-out counts as a broken promise."""
    try:
        screen.heading("Starting the cluster, each part a process")
        await cluster.start(screen.note)
        screen.note("up")
        await Demo(cluster, screen).run()
    except NotInTimeError as error:
        screen.promise(str(error), False)


async def play(screen: Screen, folder: Path, keep: bool) -> None:
    """
    Run the demo on a cluster in *folder*, and remove the cluster afterwards unless *keep* is set.

    Raises: CancelledError after a signal to stop, once everything is removed.
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
            remove(folder)


def remove(folder: Path) -> None:
    """Remove *folder*, and the link to it."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder == FOLDER:
        LINK.unlink(missing_ok=True)


def on_stop_signal(call: Callable[[], object]) -> None:
    """Call *call* on a signal to stop, instead of what was called before."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, call)


def farewell(screen: Screen, folder: Path, keep: bool) -> int:
    """Print the result and the next commands, and return the exit status."""
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
        for command in next_commands(folder):
            screen.console.print(f"  {command}", soft_wrap=True)
    return 1 if failed or not screen.promises else 0


def next_commands(folder: Path) -> list[str]:
    """Return what one wants next with a cluster that was left up in *folder*. They work as printed, in the checkout."""
    program, cluster = os.path.relpath(PROGRAM), f"--kubeconfig {folder}/kubeconfig"
    return [
        f"{program} top pods -w {cluster}",
        f"{program} waiting {cluster}",
        f"{program} explain resident {cluster}",
        f"{program} ui --open {cluster}",
        f"kubectl {cluster} get pods,nodes",
        f"ls {folder}/logs",
        "make down",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--keep", action="store_true", help="leave the cluster running afterwards")
    parser.add_argument("--down", action="store_true", help="only remove a cluster that was left running")
    parser.add_argument(
        "--run",
        nargs=argparse.REMAINDER,
        metavar="SERVICE",
        help="run this service of a cluster that was left running here, with options of Python such as -m pdb",
    )
    parser.add_argument("--picture", type=Path, help="also write the output to this SVG file")
    parser.add_argument(
        "--folder", type=Path, default=FOLDER, help="folder of the cluster (default: one for each checkout)"
    )
    arguments = parser.parse_args()
    try:
        with claimed(arguments.folder):
            if arguments.run:
                run_service(arguments.folder, *arguments.run)
            return take_down(arguments.folder) if arguments.down else demonstrate(arguments)
    except FolderInUseError as error:
        sys.exit(f"demo: {error}")


def take_down(folder: Path) -> int:
    """Remove a cluster that was left running in *folder*, and return the exit status."""
    ended = sweep(folder)
    remove(folder)
    print(f"ended {len(ended)} processes" if ended else "no cluster was running")
    return 0


def run_service(folder: Path, name: str, *options: str) -> NoReturn:
    """Replace the service *name* of a cluster that was left running by this process, with *options* of Python."""
    try:
        arguments, environment = take_over(folder, name)
    except LookupError as error:
        sys.exit(f"demo: {error}")
    os.execve(sys.executable, [sys.executable, *options, *arguments], {**os.environ, **environment})


def demonstrate(arguments: argparse.Namespace) -> int:
    """Run the demo with these flags, and return the exit status."""
    screen = Screen.of_stdout(is_recorded=arguments.picture is not None)
    if arguments.folder == FOLDER:
        LINK.parent.mkdir(exist_ok=True)
        LINK.unlink(missing_ok=True)
        LINK.symlink_to(FOLDER)
    try:
        asyncio.run(play(screen, arguments.folder, arguments.keep))
    except asyncio.CancelledError:
        print("\nstopped; the cluster is removed")
        return INTERRUPTED
    status = farewell(screen, arguments.folder, arguments.keep)
    if arguments.picture:
        picture = screen.console.export_svg(title="make demo")
        # Without this the viewer would download a font. It has a monospace font already.
        arguments.picture.write_text(re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL))
    return status


if __name__ == "__main__":
    sys.exit(main())

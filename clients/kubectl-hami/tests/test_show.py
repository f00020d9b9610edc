"""
Tables and documents.
"""

import io
import json
from dataclasses import replace
from typing import Any

import pytest
import yaml
from rich.console import Console

from hamicommon.wire.pod_devices import encode_pod_devices
from kubectl_hami.answer.state import state_of
from kubectl_hami.answer.top import Row, device_rows, namespace_rows, node_rows, ordered, pod_rows
from kubectl_hami.answer.waits import Remedy
from kubectl_hami.commands.top import top_screen, top_table
from kubectl_hami.commands.waiting import Waits, waiting_table
from kubectl_hami.show.form import written
from kubectl_hami.show.table import put, table
from kubectl_hami.values.cluster import ClusterState, Quota, Waiting

from .builders import ALLOCATED, NOW, a_cluster, a_device, a_node, a_pod, a_scrape, a_share

MIB = 2**20


def a_state() -> ClusterState:
    """Return one Node with two devices and one Pod on the first."""
    devices = (a_device(), a_device("GPU-b", index=1, healthy=False))
    scrape = a_scrape({"hami_vgpu_memory_used_bytes": 3500 * MIB, "hami_host_gpu_memory_used_bytes": 3600 * MIB})
    return state_of(a_cluster(nodes=(a_node("n1", *devices),), pods=(a_pod("p", a_share()),), monitors={"n1": scrape}))


def lines(of: str, rows: list[Row], *, is_wide: bool = False) -> list[list[str]]:
    """Return the cells of a printed table."""
    output = io.StringIO()
    console = Console(file=output, width=300)
    console.print(top_table(of, rows, is_wide=is_wide))
    return [line.split() for line in output.getvalue().splitlines()]


def test_devices_show_offered_granted_and_used() -> None:
    """One line each, with what is wrong at its end."""
    _, first, second = lines("devices", list(device_rows(a_state())))

    assert ["n1", "0", "NVIDIA-Tesla", "T4", "1", "16384", "3000", "3600", "100", "25", "-", "-"] == first
    assert ["n1", "1", "NVIDIA-Tesla", "T4", "0", "16384", "0", "-", "100", "0", "-", "-", "unhealthy"] == second


def test_nodes_add_up_their_devices() -> None:
    """Known use is added, and unknown use is not zero."""
    _, row = lines("nodes", list(node_rows(a_state())))

    assert ["n1", "2", "1", "32768", "3000", "3600", "200", "25", "-", "-", "1", "unhealthy"] == row


def test_wide_nodes_have_the_free_room_by_shape_and_how_fragmented_it_is() -> None:
    """A device with 9000 of 16384 MiB has one half; only the idle one is whole. Closed devices have no room."""
    devices = (
        *(a_device(f"GPU-{name}", index=index) for index, name in enumerate("ab")),
        a_device("GPU-c", healthy=False),
    )
    node = a_node("n1", *devices, a_device("GPU-m", mode="mig"))
    state = state_of(a_cluster(nodes=(node,), pods=(a_pod("p", a_share("GPU-a", memory_mib=7384)),)))

    heads, row = lines("nodes", list(node_rows(state)), is_wide=True)

    assert ["WHOLE", "HALVES", "QUARTERS", "EIGHTHS", "FRAGMENTED", "%", "KIND", "MODELS"] == heads[-9:-1]
    assert ["1", "3", "6", "12", "35", "plugin", "NVIDIA-Tesla", "T4"] == row[10:18]


def a_quota(namespace: str = "default", **hard: str) -> dict[str, Any]:
    """Return a ResourceQuota that limits NVIDIA's resources."""
    limits = {f"limits.nvidia.com/{name}": amount for name, amount in hard.items()}
    return {"metadata": {"namespace": namespace, "name": "quota"}, "spec": {"hard": limits}}


def test_namespaces_show_what_they_hold_and_what_their_quota_leaves() -> None:
    """An empty namespace with a quota is one, too. What is used up is told."""
    state = state_of(
        a_cluster(
            nodes=(a_node("n1", a_device()),),
            pods=(a_pod("p", a_share()), a_pod("q", a_share(memory_mib=1000))),
            quotas=(a_quota(gpumem="8000", gpucores="50"), a_quota("new", gpumem="2000")),
        )
    )

    heads, first, second = lines("namespaces", list(namespace_rows(state)))

    assert ["NAMESPACE", "PODS", "QUOTA", "LEFT", "SHARES", "MEMORY", "MiB", "USED"] == heads[:8]
    left = "0 of 50 nvidia.com/gpucores, 4000 of 8000 nvidia.com/gpumem"
    assert f"default 2 {left} 2 4000 - 50 - - no nvidia.com/gpucores left" == " ".join(first)
    assert "new 0 2000 of 2000 nvidia.com/gpumem 0 0 - 0 - -" == " ".join(second)


def test_quota_counts_what_a_pod_holds_at_one_time() -> None:
    """As the scheduler does: its init container's share and its app's are not held together."""
    pod = a_pod("p", a_share(memory_mib=3000))
    pod["metadata"]["annotations"][ALLOCATED] = encode_pod_devices(((a_share(memory_mib=2000),), (a_share(),)))
    pod["spec"]["initContainers"] = [{"name": "before", "resources": {}}]

    [found] = state_of(
        a_cluster(nodes=(a_node("n1", a_device()),), pods=(pod,), quotas=(a_quota(gpumem="8000"),))
    ).namespaces

    assert (Quota("nvidia.com/gpumem", 8000, 3000),) == found.quotas


def test_pod_above_its_grant_is_told() -> None:
    """This is what an operator looks for."""
    _, row = lines("pods", list(pod_rows(a_state())))

    assert ["default", "p", "n1", "0", "1", "3000", "3500", "25", "-", "-", "above", "its", "grant"] == row


def test_wide_adds_the_uuid() -> None:
    """It is what other tools name a device by."""
    heads, first, _ = lines("devices", list(device_rows(a_state())), is_wide=True)

    assert "UUID" in heads
    assert "GPU-a" in first


def printed(width: int) -> list[str]:
    """Return the lines of a table in a terminal of *width* columns."""
    output = io.StringIO()
    console = Console(file=output, width=width, force_terminal=True, no_color=True, color_system=None)
    rows = [("a", "7", "some words that can be wrapped where there is no room for all of them"), ("bb", "16384", "")]
    console.print(table([">NAME>NAME>NAME", ">MEMORY", "~WHY"], rows), crop=False)
    return output.getvalue().splitlines()


def test_rows_can_stand_without_heads(capsys: pytest.CaptureFixture[str]) -> None:
    """For scripts that cut columns."""
    put(table(["NAME"], [("a",), ("b",)]), has_heads=False)

    assert "a\nb\n" == capsys.readouterr().out


def test_numbers_end_below_their_head() -> None:
    """So that their size is seen."""
    ends = [line[: len("NAME>NAME>NAME   MEMORY")][-6:] for line in printed(200)]

    assert ["MEMORY", "     7", " 16384"] == ends


def test_narrow_terminal_wraps_texts_and_cuts_nothing() -> None:
    """Where not even the numbers have room, a row is one line, which the terminal wraps."""
    assert 5 == len(printed(60))
    assert 3 == len(printed(30))
    for width in (60, 30):
        assert "16384" in printed(width)[-1]
        assert {"some", "them"} <= set(" ".join(printed(width)).split())


def test_who_waits_fits_80_columns() -> None:
    """Its two texts share what the names leave, and no line is longer than a common terminal."""
    pod = Waiting("default", "too-large", NOW, "1 NVIDIA device", "0 of 2 nodes: 2 have fewer devices than the 3 asked")
    remedy = Remedy("", ("with nvidia.com/gpu 1 instead of 3 in container main (node node-a)",), "")
    state = replace(a_state(), waiting=(pod,))
    output = io.StringIO()
    console = Console(file=output, width=80, force_terminal=True, no_color=True, color_system=None)
    console.print(waiting_table([Waits(state, {("default", "too-large"): remedy})]), crop=False)

    assert 80 >= max(len(line) for line in output.getvalue().splitlines())


@pytest.mark.parametrize(
    ("width", "lost"),
    [(200, None), (100, "no room for THROTTLED"), (80, "no room for DEVICE, SHARES, THROTTLED")],
)
def test_screen_drops_whole_columns_and_names_them(width: int, lost: str | None) -> None:
    """A live view cannot wrap, and half a number would be wrong. What is wrong with a Pod stays."""
    output = io.StringIO()
    console = Console(file=output, width=width, force_terminal=True, no_color=True, color_system=None)
    console.print(top_screen("pods", list(pod_rows(a_state())), width), crop=False)

    head, row, *rest = [line.rstrip() for line in output.getvalue().splitlines()]
    assert ([lost] if lost else []) == rest
    assert {"USED", "BUSY", "STATE"} < set(head.split())
    assert row.endswith("above its grant")
    assert width >= len(row)


def test_number_that_has_no_room_is_not_cut() -> None:
    """In any width in which the names have room."""
    for width in range(20, 120):
        output = io.StringIO()
        console = Console(file=output, width=width, force_terminal=True, no_color=True, color_system=None)
        console.print(top_screen("devices", list(device_rows(a_state())), width), crop=False)
        assert width >= max(len(line.rstrip()) for line in output.getvalue().splitlines()[:2]), output.getvalue()


def test_most_used_comes_first() -> None:
    """An unknown use comes last."""
    rows = ordered(reversed(list(device_rows(a_state()))), "used")

    assert [("n1", "0"), ("n1", "1")] == [row.name[:2] for row in rows]


def test_json_and_yaml_say_the_same() -> None:
    """The names are those of the fields."""
    state = a_state()

    found = json.loads(written(state, "json"))

    assert found == yaml.safe_load(written(state, "yaml"))
    assert 3000 == found["nodes"][0]["devices"][0]["shares"][0]["memoryMib"]
    assert found["nodes"][0]["devices"][1]["usedMemoryMib"] is None
    assert "2026-11-25T12:00:00Z" == found["takenAt"]


def test_names_of_tenants_cannot_drive_a_terminal() -> None:
    """An escape sequence in a model is shown, not obeyed."""
    state = state_of(a_cluster(nodes=(a_node("n1", a_device(type="\x1b[2Jgone\r\n\u202e")),)))
    output = io.StringIO()
    Console(file=output, width=300, force_terminal=True).print(top_table("devices", list(device_rows(state))))

    [_, row] = output.getvalue().splitlines()

    assert "\x1b[2J" not in row
    assert "\u202e" not in row
    assert "gone" in row


def test_no_two_columns_are_named_alike() -> None:
    """Each says what it has, also where a narrow screen has left its neighbours out."""
    for of in ("nodes", "devices", "pods", "namespaces"):
        heads = [str(column.header) for column in top_table(of, [], is_wide=True).columns]
        assert sorted(set(heads)) == sorted(heads)


def test_wide_devices_have_temperature_and_power() -> None:
    """As the monitor measures them; of a device that nobody measures they are unknown."""
    scrape = a_scrape({"hami_device_temperature_celsius": 61, "hami_device_power_watts": 212.4})
    node = a_node("n1", a_device(), a_device("GPU-b", index=1))
    state = state_of(a_cluster(nodes=(node,), monitors={"n1": scrape}))

    heads, first, second = lines("devices", list(device_rows(state)), is_wide=True)

    assert ["TEMP", "C", "POWER", "W", "UUID", "MODE"] == heads[-7:-1]
    assert ["61", "212", "GPU-a", "-"] == first[-4:]
    assert ["-", "-", "GPU-b", "-"] == second[-4:]

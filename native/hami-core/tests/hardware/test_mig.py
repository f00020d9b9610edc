"""
MIG: the mode, the instances that processes create, and the devices that these are.
"""

import os
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import pynvml as n
import pytest
from containers import GPU_A, GPU_B, GPU_C, Container
from hardware.process import Process, Start, error

from testbed.driver.hardware import FakeDriver
from testbed.driver.mig.files import mig_minors

NOT_SUPPORTED = error(n.NVML_ERROR_NOT_SUPPORTED)
INVALID = error(n.NVML_ERROR_INVALID_ARGUMENT)
IN_USE = error(n.NVML_ERROR_IN_USE)
NO_ROOM = error(n.NVML_ERROR_INSUFFICIENT_RESOURCES)
OFF, ON = 0, 1
ACTIVE = n.NVML_SUCCESS
A100, H100, T4 = 0, 1, 2
WHOLE, HALF, PAIR, SINGLE = 0, 9, 14, 19
UUIDS = "[n.nvmlDeviceGetUUID(n.nvmlDeviceGetMigDeviceHandleByIndex(gpu(0), index)) for index in range(2)]"


@pytest.fixture
def container(container: Container) -> Container:
    """A container on a node with an A100, an H100 and a T4."""
    (container.folder / "hardware/devices.csv").write_text(
        "uuid,name,memory_mib,numa_node,pci_bus_id\n"
        f"{GPU_A},NVIDIA A100-SXM4-40GB,40960,0,0000:17:00.0\n"
        f"{GPU_B},NVIDIA H100 80GB HBM3,81559,0,0000:65:00.0\n"
        f"{GPU_C},Tesla T4,15360,1,0000:ca:00.0\n"
    )
    return container


def in_mig_mode(start: Start, gpu: int = A100) -> Process:
    """Return a process that has switched a GPU to MIG, alone on the node."""
    process = start()
    assert [ACTIVE, [ON, ON]] == process.ask(f"set_mode({gpu}, 1)")
    return process


def test_models_without_mig_do_not_support_it(start: Start) -> None:
    """
    They have no mode, no profiles and no MIG devices.
    """
    process = start()
    calls = ("n.nvmlDeviceGetMigMode(gpu(2))", "set_mode(2, 1)", "spans(2, 19)")

    assert [NOT_SUPPORTED] * 3 == process.ask_all(*calls)
    assert [[], 0] == process.ask_all("profiles(2)", "n.nvmlDeviceGetMaxMigDeviceCount(gpu(2))")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act for another user")
def test_owner_of_the_devices_is_root_of_the_node(start: Start, container: Container) -> None:
    """
    An ordinary user's tests own the folder of the devices, and may change MIG. Other users may not.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(container.folder / "hardware/devices.csv", folder)
        folder.chmod(0o755)
        process = start(FAKE_DRIVER_DIR=name)
        process.ask("os.seteuid(65534)")

        assert error(n.NVML_ERROR_NO_PERMISSION) == process.ask(f"set_mode({A100}, 1)")
        os.chown(folder, 65534, -1)
        assert [ACTIVE, [ON, ON]] == process.ask(f"set_mode({A100}, 1)")


def test_profiles_and_places_of_an_a100(start: Start) -> None:
    """
    They are those that nvidia-smi lists. NVML returns them while MIG is off too.
    """
    process = start()

    assert [
        ["MIG 1g.5gb", 19, 1, 7, 14, 4864],
        ["MIG 2g.10gb", 14, 2, 3, 28, 9984],
        ["MIG 3g.20gb", 9, 3, 2, 42, 20096],
        ["MIG 4g.20gb", 5, 4, 1, 56, 20096],
        ["MIG 7g.40gb", 0, 7, 1, 98, 40448],
        ["MIG 1g.5gb+me", 20, 1, 1, 14, 4864],
        ["MIG 1g.10gb", 15, 1, 4, 14, 9984],
    ] == process.ask("profiles(0)")
    assert [
        [[start, 1] for start in range(7)],
        [[0, 2], [2, 2], [4, 2]],
        [[0, 4], [4, 4]],
        [[0, 4]],
        [[0, 8]],
        [[0, 2], [2, 2], [4, 2], [6, 2]],
    ] == process.ask("[spans(0, profile) for profile in (19, 14, 9, 5, 0, 15)]")
    assert INVALID == process.ask("spans(0, 21)")


def test_mode_of_an_ampere_waits_for_other_clients(start: Start) -> None:
    """
    Any process that holds the driver keeps it pending. Setting it again when they are gone activates it.
    """
    process, other = start(), start()

    assert [n.NVML_ERROR_IN_USE, [OFF, ON]] == process.ask("set_mode(0, 1)")
    assert [OFF, ON] == other.ask("n.nvmlDeviceGetMigMode(gpu(0))")
    assert NOT_SUPPORTED == process.ask("create(0, 19)")
    other.kill()
    assert [ACTIVE, [ON, ON]] == process.ask("set_mode(0, 1)")


def test_mode_of_a_hopper_waits_for_programs_alone(start: Start) -> None:
    """
    It needs no reset, so others may hold the driver. A program on the GPU keeps it pending.
    """
    process, other = start(), start()
    other.keep("cuda", "Cuda(1)")

    assert [n.NVML_ERROR_IN_USE, [OFF, ON]] == process.ask("set_mode(1, 1)")
    other.kill()
    start()
    assert [ACTIVE, [ON, ON]] == process.ask("set_mode(1, 1)")


def test_mode_may_need_a_reset(start: Start, driver: FakeDriver) -> None:
    """
    In a virtual machine the mode is pending until then.
    """
    driver.set(GPU_A, mig_needs_reset=1)
    process = start()

    assert [n.NVML_ERROR_RESET_REQUIRED, [OFF, ON]] == process.ask("set_mode(0, 1)")
    process.ask("n.nvmlShutdown()")
    driver.reset(GPU_A)
    assert [None, [ON, ON]] == process.ask_all("n.nvmlInit()", "n.nvmlDeviceGetMigMode(gpu(0))")


def test_loading_the_driver_ends_instances_and_the_mode_of_a_hopper(start: Start, driver: FakeDriver) -> None:
    """
    An Ampere keeps its mode.
    """
    process = in_mig_mode(start)
    process.ask_all("set_mode(1, 1)", "create_compute(0, create(0, 19), 0)", "create(1, 19)", "n.nvmlShutdown()")
    driver.unload()
    driver.load()
    again = start()

    assert [[ON, ON], [OFF, OFF]] == again.ask("[n.nvmlDeviceGetMigMode(gpu(index)) for index in (0, 1)]")
    assert [[], []] == again.ask_all("instances(0, 19)", "devices(0)")


def test_instances_take_the_first_free_place(start: Start) -> None:
    """
    Their IDs follow from their places, and the capacity of every profile shrinks.
    """
    process = in_mig_mode(start)

    assert [[4, 3, 2], [7, 3, 2]] == [
        [process.ask(f"remaining(0, {profile})") for profile in (15, PAIR, HALF)],
        process.ask("[remaining(0, profile) for profile in (19, 14, 9)]"),
    ]
    assert [1, 5, 13] == process.ask_all("create(0, 9)", "create(0, 14)", "create(0, 19)")
    assert [0, 0, 0, 0] == process.ask("[remaining(0, profile) for profile in (9, 5, 14, 19)]")
    assert [NO_ROOM, NO_ROOM] == process.ask_all("create(0, 19)", "create(0, 0)")
    assert [[1, 9, 0, 4], [5, 14, 4, 2], [13, 19, 6, 1]] == process.ask("instances(0, 9, 14, 19)")


def test_instance_takes_the_place_that_is_asked_for(start: Start) -> None:
    """
    The place must be one of the profile's, and free. NVML does not choose another.
    """
    process = in_mig_mode(start)

    assert 2 == process.ask("create(0, 9, 4, 4)")
    assert [NO_ROOM, INVALID] == process.ask_all("create(0, 9, 4, 4)", "create(0, 9, 2, 4)")
    assert 7 == process.ask("create(0, 19, 0, 1)")
    assert NO_ROOM == process.ask("create(0, 9, 0, 4)")


def test_only_one_instance_has_the_media_engines(start: Start) -> None:
    """
    There are places for more.
    """
    process = in_mig_mode(start)

    assert [7, NO_ROOM, 0] == process.ask_all("create(0, 20)", "create(0, 20)", "remaining(0, 20)")
    assert 8 == process.ask("create(0, 19)")


def test_compute_instance_is_a_device(start: Start) -> None:
    """
    It has the name, memory and attributes of its profile, and all lookups find it. A GPU instance alone is no device.
    """
    process = in_mig_mode(start)
    process.ask("create(0, 9)")
    assert [] == process.ask("devices(0)")
    process.ask("create_compute(0, 1, 2)")

    assert [[0, "NVIDIA A100-SXM4-40GB MIG 3g.20gb", 20096, 1, 0]] == process.ask("devices(0)")
    process.keep("device", "n.nvmlDeviceGetMigDeviceHandleByIndex(gpu(0), 0)")
    uuid = process.ask("n.nvmlDeviceGetUUID(device)")
    assert uuid.startswith("MIG-")
    assert 36 + 4 == len(uuid)
    assert uuid == process.ask(f"n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByUUID('{uuid}'))")
    assert GPU_A == process.ask("n.nvmlDeviceGetUUID(n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device))")
    process.keep("attributes", "n.nvmlDeviceGetAttributes(device)")
    assert [42, 3, 3] == process.ask(
        "[attributes.multiprocessorCount, attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount]"
    )


def test_instance_is_no_gpu_with_a_mode(start: Start) -> None:
    """
    It has no mode, instances or remapped rows of its own, and is the same after calls for them.
    """
    process = in_mig_mode(start)
    process.ask("[create_compute(0, create(0, 19), 0) for _ in range(7)]")
    before = process.ask("devices(0)")
    calls = ("n.nvmlDeviceGetMigMode(device)", "n.nvmlDeviceGetRemappedRows(device)")
    assert 7 == len(before)

    for index in range(7):
        process.keep("device", f"n.nvmlDeviceGetMigDeviceHandleByIndex(gpu(0), {index})")
        assert [NOT_SUPPORTED, NOT_SUPPORTED, 0] == process.ask_all(*calls, "n.nvmlDeviceGetMaxMigDeviceCount(device)")
    assert before == process.ask("devices(0)")
    assert 7 == len(process.ask("instances(0, 19)"))


def test_container_sees_the_instances_whose_device_files_it_has(start: Start, tmp_path: Path) -> None:
    """
    Those of the GPU instance and the compute instance, besides the GPU's. CUDA takes the only one.
    """
    process = in_mig_mode(start)
    process.ask("[create_compute(0, create(0, 19), 0) for _ in range(2)]")
    minors = dict(line.split() for line in mig_minors(1).splitlines())
    (tmp_path / "nvidia-caps").mkdir()
    (tmp_path / "nvidia0").touch()
    files = {"NVIDIA_VISIBLE_DEVICES": "void", "FAKE_DRIVER_DEV": str(tmp_path)}
    for capability in ("gpu0/gi8/access", "gpu0/gi7/ci0/access"):
        (tmp_path / f"nvidia-caps/nvidia-cap{minors[capability]}").touch()
    assert [[], 100] == start(**files).ask_all("devices(0)", "Cuda().started")
    (tmp_path / f"nvidia-caps/nvidia-cap{minors['gpu0/gi8/ci0/access']}").touch()

    inside = start(**files)
    assert [8] == [instance for *_, instance, _ in inside.ask("devices(0)")]
    assert 4864 == inside.ask("Cuda().visible()[1]")


def test_compute_instances_share_a_gpu_instance(start: Start) -> None:
    """
    Each takes some of its slices and is a device. The others keep their IDs and indices when one goes.
    """
    process = in_mig_mode(start)
    process.ask("create(0, 9)")

    assert [[[0, 1], [1, 1], [2, 1]], [[0, 2]], [[0, 3]]] == process.ask(
        "[compute_spans(0, 1, kind) for kind in (0, 1, 2)]"
    )
    assert NOT_SUPPORTED == process.ask("compute_spans(0, 1, 3)")
    assert [0, 1, NO_ROOM, 2] == process.ask_all(
        *["create_compute(0, 1, 0)"] * 2, *["create_compute(0, 1, 1)", "create_compute(0, 1, 0)"]
    )
    process.ask("destroy_compute(0, 1, 1)")
    name = "NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb"
    assert [[0, name, 20096, 1, 0], [2, name, 20096, 1, 2]] == process.ask("devices(0)")
    assert 1 == process.ask("create_compute(0, 1, 0)")
    assert [0, 1, 2] == [device[0] for device in process.ask("devices(0)")]


def test_same_instance_has_the_same_uuid_again(start: Start) -> None:
    """
    It was destroyed in between. Another instance has another UUID.
    """
    process = in_mig_mode(start)
    process.ask("[create_compute(0, create(0, 19), 0) for _ in range(2)]")
    before = process.ask(UUIDS)
    process.ask_all("destroy_compute(0, 7, 0)", "destroy(0, 7)", "create_compute(0, create(0, 19), 0)")

    assert before == process.ask(UUIDS)
    assert 2 == len(set(before))


def test_instance_in_use_is_not_destroyed(start: Start) -> None:
    """
    A GPU instance has compute instances, and a program is on one of them. A program that was killed does not count.
    """
    process = in_mig_mode(start)
    process.ask("create_compute(0, create(0, 19), 0)")
    uuid = process.ask("n.nvmlDeviceGetUUID(n.nvmlDeviceGetMigDeviceHandleByIndex(gpu(0), 0))")
    program = start(init=False, CUDA_VISIBLE_DEVICES=uuid)
    program.keep("cuda", "Cuda()")

    assert 0 == program.ask("cuda.allocate(100 * MIB)[0]")
    process.keep("memory", f"n.nvmlDeviceGetMemoryInfo(n.nvmlDeviceGetHandleByUUID('{uuid}'))")
    assert [4864, 100] == process.ask("[memory.total >> 20, memory.used >> 20]")
    assert [IN_USE, IN_USE] == process.ask_all("destroy_compute(0, 7, 0)", "destroy(0, 7)")
    program.kill()
    assert [None, None, []] == process.ask_all("destroy_compute(0, 7, 0)", "destroy(0, 7)", "devices(0)")


def test_handles_of_destroyed_instances_are_invalid(start: Start) -> None:
    """
    Another process destroyed them.
    """
    process, other = in_mig_mode(start), start()
    process.ask("create_compute(0, create(0, 19), 0)")
    other.keep("device", "n.nvmlDeviceGetMigDeviceHandleByIndex(gpu(0), 0)")
    other.keep("instance", "n.nvmlDeviceGetGpuInstanceById(gpu(0), 7)")
    process.ask_all("destroy_compute(0, 7, 0)", "destroy(0, 7)")

    assert [INVALID, INVALID] == other.ask_all("n.nvmlDeviceGetUUID(device)", "n.nvmlGpuInstanceGetInfo(instance).id")


def test_reset_by_force_takes_an_instance_from_its_program(start: Start, driver: FakeDriver) -> None:
    """
    Its calls fail, also when there is an instance of the same IDs again.
    """
    process = in_mig_mode(start)
    process.ask("create_compute(0, create(0, 19), 0)")
    program = start(init=False)
    program.keep("cuda", "Cuda()")
    driver.reset(GPU_A, despite_clients=True)

    assert [] == process.ask("devices(0)")
    assert 999 == program.ask("cuda.allocate(1)[0]")
    process.ask("create_compute(0, create(0, 19), 0)")
    assert 999 == program.ask("cuda.allocate(1)[0]")


def test_leaving_mig_removes_instances(start: Start) -> None:
    """
    The GPU is whole again for CUDA. In MIG mode without instances CUDA does not see it.
    """
    process = in_mig_mode(start)
    assert 100 == start(init=False, CUDA_VISIBLE_DEVICES=GPU_A).ask("Cuda().started")
    process.ask_all("create_compute(0, create(0, 19), 0)")

    assert [ACTIVE, [OFF, OFF]] == process.ask("set_mode(0, 0)")
    assert 0 == process.ask("n.nvmlDeviceGetMaxMigDeviceCount(gpu(0))")
    assert 0 == start(init=False).ask("Cuda(0).allocate(20000 * MIB)[0]")


def test_instances_outlive_the_process_that_created_them(start: Start) -> None:
    """
    Others see them after it was killed.
    """
    process = in_mig_mode(start)
    process.ask("create_compute(0, create(0, 9), 2)")
    process.kill()

    assert [1, 0] == start().ask("devices(0)")[0][3:]


@pytest.mark.parametrize("when", ["KILL", "KILL_AFTER"])
@pytest.mark.parametrize(
    ("call", "left"),
    [
        ("nvmlDeviceCreateGpuInstance", {"KILL": [[], []], "KILL_AFTER": [[[7, 19, 0, 1]], []]}),
        ("nvmlGpuInstanceCreateComputeInstance", {"KILL": [[[7, 19, 0, 1]], []], "KILL_AFTER": [[[7, 19, 0, 1]], [0]]}),
    ],
)
def test_process_killed_at_a_creation_leaves_all_or_nothing(
    start: Start, when: str, call: str, left: dict[str, Any]
) -> None:
    """
    Another process can create the next instance.
    """
    process = start(FAKE_DRIVER_FAULTS=f"{call}:1:{when}")
    process.ask("set_mode(0, 1)")
    process.send("create_compute(0, create(0, 19), 0)")
    assert -signal.SIGKILL == process.process.wait(timeout=60)

    other = start()
    found, devices = other.ask_all("instances(0, 19)", "[device[0] for device in devices(0)]")
    assert left[when] == [found, devices]
    assert 8 - (not found) == other.ask("create(0, 19)")


def test_processes_killed_at_any_time_leave_whole_instances(start: Start) -> None:
    """
    Each device belongs to a GPU instance, no two GPU instances overlap, and others can destroy and create all of them.
    """
    process = in_mig_mode(start)
    for milliseconds in range(10, 90, 20):
        churning = [start() for _ in range(2)]
        for each in churning:
            each.send("churn(0)")
        time.sleep(milliseconds / 1000)
        for each in churning:
            each.kill()

        found = process.ask("instances(0, 19, 14, 9)")
        slices = [start + step for *_, start, size in found for step in range(size)]
        assert len(slices) == len(set(slices))
        assert {device[3] for device in process.ask("devices(0)")} <= {instance[0] for instance in found}
        assert [None, [7, 3, 2]] == process.ask_all("clear(0)", "[remaining(0, profile) for profile in (19, 14, 9)]")


def test_reading_an_instance_while_another_process_destroys_it_leaves_the_others(start: Start) -> None:
    """
    Each of them is in the driver's table beside the one that changes.
    """
    process, reader = in_mig_mode(start), start()
    numbers = [process.ask("create(0, 19)") for _ in range(5)]
    process.ask_all(*(f"create_compute(0, {number}, 0)" for number in numbers))
    reader.send("read_for_ever(0, 3)")

    assert process.ask(f"renew_compute(0, {numbers[3]}, 2000)") is None
    assert [[number, 0] for number in numbers] == sorted(device[3:] for device in process.ask("devices(0)"))
    assert process.ask("clear(0)") is None


def test_xid_of_an_instance_is_an_event_of_its_gpu(start: Start, driver: FakeDriver) -> None:
    """
    It has the numbers of the instance. Only the GPU can be registered.
    """
    process = in_mig_mode(start)
    process.ask("create_compute(0, create(0, 9), 2)")
    process.keep("device", "n.nvmlDeviceGetMigDeviceHandleByIndex(gpu(0), 0)")
    process.keep("events", "n.nvmlEventSetCreate()")
    register = "n.nvmlDeviceRegisterEvents({}, n.nvmlEventTypeXidCriticalError, events)"

    assert [NOT_SUPPORTED, None] == process.ask_all(register.format("device"), register.format("gpu(0)"))
    driver.report_xid(process.ask("n.nvmlDeviceGetUUID(device)"), 94)
    process.keep("event", "n.nvmlEventSetWait_v2(events, 60000)")
    assert [GPU_A, 94, 1, 0] == process.ask(
        "[n.nvmlDeviceGetUUID(event.device), event.eventData, event.gpuInstanceId, event.computeInstanceId]"
    )


def test_container_sees_the_instances_that_were_injected(start: Start) -> None:
    """
    The UUID of an instance shows it alone; the UUID of a GPU shows all instances, also those created later.
    """
    process = in_mig_mode(start, H100)
    whole = start(NVIDIA_VISIBLE_DEVICES=GPU_B)
    process.ask("[create_compute(1, create(1, 19), 0) for _ in range(2)]")
    one = process.ask("n.nvmlDeviceGetUUID(n.nvmlDeviceGetMigDeviceHandleByIndex(gpu(1), 1))")

    assert [1, 2] == [len(each.ask("devices(0)")) for each in (start(NVIDIA_VISIBLE_DEVICES=one), whole)]
    assert process.ask("devices(1)") == whole.ask("devices(0)")

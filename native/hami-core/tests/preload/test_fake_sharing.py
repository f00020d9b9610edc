"""
What memory that several handles, mappings or processes share takes on the fake driver's devices.
"""

import json
import subprocess
import threading
from typing import Any

import pytest
from containers import Container


def test_vmm_memory_lives_until_its_last_handle_and_mapping(bare: Container) -> None:
    """
    Released while mapped it stays. A handle retained from the mapping keeps it. Two mappings of one handle count once.
    """
    said = bare.run(
        """
handle, retained, place = vmm(20 * MIB), c_uint64(), reserve(60 * MIB)
seen = [truth()]
lib.cuMemMap(place, c_size_t(20 * MIB), c_size_t(0), handle, c_uint64(0))
lib.cuMemMap(c_uint64(place.value + 20 * MIB), c_size_t(10 * MIB), c_size_t(10 * MIB), handle, c_uint64(0))
seen += [truth(), lib.cuMemRelease(handle), truth()]
lib.cuMemRetainAllocationHandle(byref(retained), c_void_p(place.value + MIB))
seen += [lib.cuMemUnmap(place, c_size_t(10 * MIB)), lib.cuMemUnmap(place, c_size_t(30 * MIB)), truth()]
say([*seen, lib.cuMemRelease(retained), truth(), lib.cuMemRelease(retained)])
""",
    )

    assert [20480, 20480, 0, 20480, 1, 0, 20480, 0, 0, 1] == said


def test_exported_memory_is_charged_once_and_outlives_its_maker(bare: Container) -> None:
    """
    The importer is charged when the maker is killed. An open file alone keeps the memory; its last close frees it.
    """
    meeting = str(bare.folder / "meeting")
    importer = bare.start(
        """
import socket
listener = socket.create_server(MEETING, family=socket.AF_UNIX)
say("listening")
file = socket.recv_fds(listener.accept()[0], 1, 1)[1][0]
handle, again = c_uint64(), c_uint64()
results = [lib.cuMemImportFromShareableHandle(byref(each), c_void_p(file), 1) for each in (handle, again)]
say([results, handle.value == again.value, truth() - CONTEXT_MIB * 1024, truth(os.getpid())])
wait()
seen = [truth(), truth(os.getpid())]
lib.cuMemRelease(handle)
lib.cuMemRelease(again)
seen += [truth(), truth(os.getpid())]
os.close(file)
say([*seen, truth()])
""".replace("MEETING", repr(meeting)),
    )
    assert importer.stdout is not None
    importer.stdout.readline()
    maker = bare.start(
        """
import socket
file, peer = c_int(), socket.socket(socket.AF_UNIX)
lib.cuMemExportToShareableHandle(byref(file), vmm(20 * MIB), 1, c_uint64(0))
peer.connect(MEETING)
socket.send_fds(peer, [b"x"], [file.value])
wait()
""".replace("MEETING", repr(meeting)),
    )
    imported = json.loads(importer.stdout.readline())
    maker.kill()
    maker.wait(timeout=20)
    last, _ = importer.communicate("\n", timeout=20)

    assert [[0, 0], True, 20480, 0] == imported
    assert [20480, 20480, 20480, 0, 0] == json.loads(last)


def test_ipc_memory_is_charged_once(bare: Container) -> None:
    """
    Opened twice it has one address. The memory outlives its maker's free until the last close. Its maker cannot open
    it.
    """
    maker = bare.start(
        """
pointer = cuda.allocate(10 * MIB)[1]
handle, other = ctypes.create_string_buffer(64), c_uint64()
lib.cuIpcGetMemHandle(handle, c_uint64(pointer + MIB))
class Handle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_char * 64)]
refused = lib.cuIpcOpenMemHandle_v2(byref(other), Handle.from_buffer(handle), 1)
say([handle.raw.hex(), refused])
wait()
cuda.free(pointer)
say(truth(os.getpid()))
wait()
""",
    )
    assert maker.stdin is not None
    assert maker.stdout is not None
    handle, refused = json.loads(maker.stdout.readline())
    opener = bare.start(
        f"""
class Handle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_char * 64)]
handle = Handle.from_buffer_copy(bytes.fromhex("{handle}"))
first, second = c_uint64(), c_uint64()
results = [lib.cuIpcOpenMemHandle_v2(byref(pointer), handle, 1) for pointer in (first, second)]
say([results, first.value == second.value, truth() - CONTEXT_MIB * 1024, truth(os.getpid())])
wait()
seen = [truth(os.getpid())]
for _ in range(3):
    results.append(lib.cuIpcCloseMemHandle(first))
say([*seen, results[2:], truth(os.getpid())])
""",
    )
    assert opener.stdout is not None
    opened = json.loads(opener.stdout.readline())
    maker.stdin.write("\n")
    maker.stdin.flush()
    left = json.loads(maker.stdout.readline())
    last, _ = opener.communicate("\n", timeout=20)
    maker.communicate("\n", timeout=20)

    assert 201 == refused
    assert [[0, 0], True, 10240, 0] == opened
    assert 0 == left
    assert [10240, [0, 0, 1], 0] == json.loads(last)


EVENT_MAKER = """
event, plain, handle = c_void_p(), c_void_p(), ctypes.create_string_buffer(64)
results = [lib.cuEventCreate(byref(event), 4), lib.cuEventCreate(byref(event), 6), lib.cuEventCreate(byref(plain), 0)]
results += [lib.cuIpcGetEventHandle(handle, event), lib.cuIpcGetEventHandle(handle, plain)]
kernels = [cuda.kernel(800_000), cuda.kernel(60_000_000)]
say([results, handle.raw.hex()])
for kernel in kernels:
    wait()
    cuda.launch(kernel)
    say(lib.cuEventRecord(event, None))
wait()
"""
EVENT_OPENER = """
import time
class Handle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_char * 64)]
event, stream = c_void_p(), c_void_p()
opened = lib.cuIpcOpenEventHandle(byref(event), Handle.from_buffer_copy(bytes.fromhex("HANDLE")))
say([opened, lib.cuEventQuery(event)])
for _ in range(2):
    wait()
    lib.cuStreamCreate(byref(stream), 1)
    began, seen = time.monotonic(), [lib.cuEventQuery(event), lib.cuStreamWaitEvent(stream, event, 0)]
    seen += [lib.cuStreamQuery(stream), lib.cuStreamSynchronize(stream), lib.cuEventQuery(event)]
    say([seen, time.monotonic() - began])
"""


def next_line(process: "subprocess.Popen[str]", *, goes_on: bool = False) -> Any:
    """Return the next line of a program's output, which is JSON; *goes_on* ends a `wait()` of the program first."""
    assert process.stdin is not None
    assert process.stdout is not None
    if goes_on:
        process.stdin.write("\n")
        process.stdin.flush()
    return json.loads(process.stdout.readline())


@pytest.mark.parametrize("has_library", [False, True], ids=["bare", "limited"])
def test_event_of_another_process_is_waited_for(bare: Container, has_library: bool) -> None:
    """
    It is reached when the maker's kernel ends. A stream of the opener waits for it, and an event of a dead maker is
    reached. An event that was not made for it has no handle.
    """
    bare.has_library = has_library
    bare.environment |= {"CUDA_DEVICE_SM_LIMIT": "50", "GPU_CORE_UTILIZATION_POLICY": "force"}
    maker = bare.start(EVENT_MAKER)
    results, handle = next_line(maker)
    opener = bare.start(EVENT_OPENER.replace("HANDLE", handle))
    opened, recorded = next_line(opener), [next_line(maker, goes_on=True)]
    first, first_seconds = next_line(opener, goes_on=True)
    recorded.append(next_line(maker, goes_on=True))
    threading.Timer(0.3, maker.kill).start()
    second, second_seconds = next_line(opener, goes_on=True)
    for process in (maker, opener):
        process.communicate(timeout=20)

    assert [1, 0, 0, 0, 400] == results
    assert [[0, 0], [0, 0]] == [opened, recorded]
    assert [600, 0, 600, 0, 0] == first == second
    assert 0.1 < first_seconds < 5
    assert second_seconds < 10

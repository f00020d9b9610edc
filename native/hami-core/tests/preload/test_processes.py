"""
However a process starts and ends, it is charged for its own memory only.
"""

import json

from containers import Container

from hamicommon.wire.region.codec import decode_region

MIB = 1 << 20


def charged(container: Container) -> dict[int, int]:
    """Return the MiB on the first device by pid, from the region."""
    region = decode_region(container.region.read_bytes())
    return {slot.pid: slot.memory[0].data // MIB for slot in region.slots}


def test_child_that_never_uses_cuda_leaves_its_parents_slot(container: Container) -> None:
    """
    A forked child that ends normally, with its destructors, gives nothing back.
    """
    process = container.start("""
cuda = Cuda()
cuda.allocate(100 * MIB)
child = os.fork()
if child == 0:
    sys.exit(0)
say(os.waitpid(child, 0)[1])
wait()
""")
    assert process.stdout is not None
    assert "0\n" == process.stdout.readline()
    held = charged(container)
    process.communicate("\n", timeout=20)

    assert {process.pid: 100} == held


def test_spawned_children_touch_nothing(container: Container) -> None:
    """
    A child of vfork, posix_spawn or a shell has the library loaded, and the region stays the same to the byte.
    """
    same = container.run("""
import subprocess
def region():
    with open(os.environ["CUDA_DEVICE_MEMORY_SHARED_CACHE"], "rb") as file:
        return file.read()
cuda = Cuda()
cuda.allocate(100 * MIB)
before = region()
subprocess.run(["true"], check=True)
subprocess.run([sys.executable, "-c", "import ctypes; ctypes.CDLL('libcuda.so.1')"], check=True)
os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", "exit 0"], os.environ), 0)
os.system("ls / > /dev/null")
say(before == region())
""")

    assert same is True


def test_program_that_replaces_itself_starts_afresh(container: Container) -> None:
    """
    exec keeps the pid and gives all memory back: the new program has the whole share and is charged for its own part.
    """
    process = container.start("""
cuda = Cuda()
cuda.allocate(600 * MIB)
os.execv(sys.executable, [sys.executable, "-c", '''
from client import *
cuda = Cuda()
say([cuda.allocate(900 * MIB)[0], cuda.allocate(200 * MIB)[0]])
wait()
'''])
""")
    assert process.stdout is not None
    assert "[0, 2]\n" == process.stdout.readline()
    held = charged(container)
    process.communicate("\n", timeout=20)

    assert {process.pid: 900} == held


def test_daemon_has_a_slot_of_its_own(container: Container) -> None:
    """
    A process that forks twice and leaves its session is charged under its own pid, and its parents are not charged.
    """
    process = container.start("""
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
cuda = Cuda()
say([os.getpid(), cuda.allocate(300 * MIB)[0], cuda.allocate(800 * MIB)[0]])
wait()
""")
    assert process.stdout is not None
    daemon, *results = json.loads(process.stdout.readline())
    held = charged(container)
    process.communicate("\n", timeout=20)

    assert [0, 2] == results
    assert {daemon: 300} == held
    assert daemon != process.pid


def test_threads_that_start_together_share_one_slot(container: Container) -> None:
    """
    Threads whose first calls are simultaneous attach once, and their charges add up.
    """
    process = container.start("""
import threading
library = ctypes.CDLL("libcuda.so.1")
gate = threading.Barrier(16)
results = []
def work():
    pointer = c_uint64()
    context = c_void_p()
    gate.wait()
    answers = [
        library.cuInit(0),
        library.cuDevicePrimaryCtxRetain(byref(context), 0),
        library.cuCtxSetCurrent(context),
    ]
    for size in (10 * MIB, 2000 * MIB, 20 * MIB):
        answers.append(library.cuMemAlloc_v2(byref(pointer), c_size_t(size)))
    results.append(answers)
threads = [threading.Thread(target=work) for _ in range(16)]
for thread in threads: thread.start()
for thread in threads: thread.join()
say(results)
wait()
""")
    assert process.stdout is not None
    results = json.loads(process.stdout.readline())
    held = charged(container)
    process.communicate("\n", timeout=20)

    assert [[0, 0, 0, 0, 2, 0]] * 16 == results
    assert {process.pid: 16 * 30} == held


def test_child_forked_in_the_middle_of_anything_never_hangs(container: Container) -> None:
    """
    Threads allocate and launch while their process forks: no child waits for a lock of its parent's threads.
    """
    statuses = container.run("""
import signal, threading
cuda = Cuda()
kernel = cuda.kernel(0)
is_over = threading.Event()
def work():
    cuda.use(0)
    while not is_over.is_set():
        cuda.free(cuda.allocate(MIB)[1])
        cuda.visible()
        cuda.launch(kernel)
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
statuses = []
for _ in range(30):
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        memory = (c_uint64 * 3)()
        nvml, device = ctypes.CDLL("libnvidia-ml.so.1"), c_void_p()
        nvml.nvmlInit_v2()
        nvml.nvmlDeviceGetHandleByIndex_v2(0, byref(device))
        results = [nvml.nvmlDeviceGetMemoryInfo(device, memory), cuda.allocate(MIB)[0], cuda.launch(kernel)]
        os._exit(0 if results == [0, 3, 3] and memory[0] == 1000 * MIB else 1)
    statuses.append(os.waitpid(child, 0)[1])
is_over.set()
for thread in threads: thread.join()
say(statuses)
""")

    assert [0] * 30 == statuses


def test_child_forked_while_another_thread_attaches_never_hangs(container: Container) -> None:
    """
    If a thread waits for the region's lock in its first call, a child forked meanwhile has nothing locked.
    """
    status = container.run("""
import signal, subprocess, threading, time
hold = "import fcntl, sys; file = open(sys.argv[1], 'w+b'); fcntl.lockf(file, fcntl.LOCK_EX); print(); sys.stdin.read()"
holder = subprocess.Popen([sys.executable, "-uc", hold, os.environ["CUDA_DEVICE_MEMORY_SHARED_CACHE"]],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE)
holder.stdout.readline()
thread = threading.Thread(target=ctypes.CDLL("libcuda.so.1").cuInit, args=(0,))
thread.start()
time.sleep(0.3)
child = os.fork()
if child == 0:
    signal.alarm(20)
    nvml, device, memory = ctypes.CDLL("libnvidia-ml.so.1"), c_void_p(), (c_uint64 * 3)()
    nvml.nvmlInit_v2()
    nvml.nvmlDeviceGetHandleByIndex_v2(0, byref(device))
    nvml.nvmlDeviceGetMemoryInfo(device, memory)
    os._exit(0 if memory[0] == 1000 * MIB else 1)
holder.kill()
status = os.waitpid(child, 0)[1]
thread.join()
say(status)
""")

    assert 0 == status

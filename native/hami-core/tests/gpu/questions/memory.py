"""
Questions about the driver's limits on the memory of a cgroup.
"""

from pathlib import Path
from typing import Any, Final

from gpu.questions.host import DMEM, IN_NAMESPACES, MISC, Host, NotTriedError
from gpu.questions.question import question
from hardware.process import Process

MIB: Final = 1 << 20
LIMIT_MIB: Final = 2048
NO_LIMIT: Final = 2**64 - 1
LEAF: Final = "/pod/container"
_MANY: Final = 200
_SETTERS: Final = 4


def _limit(host: Host, root: Process, folder: Path, mib: int = LIMIT_MIB) -> Any:
    """Limit a cgroup without a soft limit. Returns None, or the error of NVML."""
    return host.ask(root, f"set_limits({str(folder)!r}, 0, {mib * MIB})")


def _group(host: Host, path: str = LEAF, *, runtime: str = "runc") -> Path:
    """Make a cgroup whose limit is gone before it is removed: with misc, the next one could inherit it."""
    folder = host.group(path, runtime=runtime)
    host.at_the_end(lambda: host.root().ask(f"set_limits({str(folder)!r}, 0, {NO_LIMIT})"))
    return folder


def _limited(host: Host) -> tuple[Process, Path]:
    """Return a process with NVML open, and the folder of a cgroup that it has limited."""
    root = host.root()
    folder = _group(host)
    refused = _limit(host, root, folder)
    if refused is not None:
        raise NotTriedError(f"no limit can be set: NVML's error {refused['error']}")
    return root, folder


def _only(host: Host, controller: str) -> None:
    if host.groups.controller != controller:
        raise NotTriedError(f"limits are held by {host.groups.controller}, and not by {controller}")


@question("yes")
def context_counts_against_a_limit(host: Host) -> str:
    """Does the memory of a context count against a cgroup's limit?"""
    root, folder = _limited(host)
    host.ask(host.process(LEAF), "join()")
    return "yes" if host.ask(root, f"limits({str(folder)!r})")[2] > 0 else "no"


@question("the limit")
def total_that_cuda_shows(host: Host) -> str:
    """What does CUDA show as a device's memory under a limit without a soft one?"""
    _limited(host)
    _, _, total, free = host.ask(host.root(LEAF), "seen()")
    return "the limit" if total == LIMIT_MIB and free <= LIMIT_MIB else "the device"


@question("the limit")
def total_that_nvml_shows(host: Host) -> str:
    """What does NVML's first form show as a device's memory under a limit without a soft one?"""
    _limited(host)
    total, _, _, _ = host.ask(host.root(LEAF), "seen()")
    return "the limit" if total == LIMIT_MIB else "the device"


@question("refused")
def limit_above_the_device(host: Host) -> str:
    """Can a limit be greater than the device's memory?"""
    root = host.root()
    folder = _group(host)
    total = host.ask(root, "n.nvmlDeviceGetMemoryInfo(gpu(0)).total")
    return "refused" if _limit(host, root, folder, total // MIB + 1024) is not None else "accepted"


@question("kept")
def limit_after_the_last_close(host: Host) -> str:
    """Is a limit still there after every process has closed the driver, without persistence mode?"""
    root, folder = _limited(host)
    if host.ask(root, "n.nvmlDeviceGetPersistenceMode(gpu(0))") == 1:
        raise NotTriedError("persistence mode is on, so the driver stays open")
    before = host.ask(root, f"limits({str(folder)!r})")
    root.kill()
    after = host.ask(host.root(), f"limits({str(folder)!r})")
    return "kept" if after == before else "gone"


@question("read")
def limit_in_a_cgroup_namespace(host: Host) -> str:
    """Does Get find a cgroup by the host's path in a process that has a cgroup namespace?"""
    root, folder = _limited(host)
    inside = host.process(prefix=(*IN_NAMESPACES, "--cgroup"))
    host.ask(inside, "n.nvmlInit()")
    get = f"limits({str(folder)!r})"
    return "read" if host.ask(inside, get) == host.ask(root, get) else "not found"


@question("each one holds")
def limits_that_are_set_at_once(host: Host) -> str:
    """Do all limits hold that several processes set at once below one cgroup?"""
    folders = {_group(host, f"/pod/c{number}"): LIMIT_MIB + number for number in range(_SETTERS)}
    setters = [host.root() for _ in folders]
    for setter, (folder, mib) in zip(setters, folders.items(), strict=True):
        setter.send(f"[set_limits({str(folder)!r}, 0, {mib * MIB}) for _ in range({_MANY})][-1]")
    refused = [host.answer(setter) for setter in setters]
    found = [host.ask(setters[0], f"limits({str(folder)!r})")[1] for folder in folders]
    holds = refused == [None] * _SETTERS and found == [mib * MIB for mib in folders.values()]
    return "each one holds" if holds else "some are lost"


@question("inherited", kinder=("never in 200",))
def limit_of_a_removed_cgroup(host: Host) -> str:
    """With misc, does a new cgroup inherit the limit of one that was removed?"""
    _only(host, MISC)
    root = host.root()
    # A limit that another container may inherit later limits it to nothing less than the device.
    whole_mib = host.ask(root, "n.nvmlDeviceGetMemoryInfo(gpu(0)).total") // MIB
    for number in range(_MANY):
        folder = host.groups.create(f"/pod/old{number}")
        _limit(host, root, folder, whole_mib)
        host.groups.remove(f"/pod/old{number}")
        path = f"/pod/new{number}"
        folder = host.group(path)
        host.ask(host.process(path), "join()")
        found = host.ask(root, f"limits({str(folder)!r})")
        if isinstance(found, list) and found[1] == whole_mib * MIB:
            return "inherited"
    return "never in 200"


@question("after its Pod has +dmem", kinder=("at once",))
def limit_of_a_container_of_crun(host: Host) -> str:
    """With dmem, when can a cgroup be limited that was made without the controller, as crun does?"""
    _only(host, DMEM)
    root = host.root()
    folder = _group(host, runtime="crun")
    if _limit(host, root, folder) is None:
        return "at once"
    with (folder.parent / "cgroup.subtree_control").open("a") as enabled:
        enabled.write("+dmem")
    return "after its Pod has +dmem" if _limit(host, root, folder) is None else "never"


QUESTIONS: Final = (
    context_counts_against_a_limit,
    total_that_cuda_shows,
    total_that_nvml_shows,
    limit_above_the_device,
    limit_after_the_last_close,
    limit_in_a_cgroup_namespace,
    limits_that_are_set_at_once,
    limit_of_a_removed_cgroup,
    limit_of_a_container_of_crun,
)

"""
Processes of several pid namespaces share their container's limit, although they cannot see each other's pids.
"""

from containers import Container, nested

ALLOCATE = "say(Cuda().allocate({mib} * MIB)[0])"


def test_live_process_of_a_nested_pid_namespace_stays_charged(container: Container) -> None:
    """
    Outside, its pid means nothing. Its memory counts until it is killed, and no longer.
    """
    with nested(container, 700) as result:
        assert 0 == result
        assert 2 == container.run(ALLOCATE.format(mib=400))
        assert 0 == container.run(ALLOCATE.format(mib=200))

    assert 0 == container.run(ALLOCATE.format(mib=1000))


def test_live_process_outside_stays_charged_for_a_nested_pid_namespace(container: Container) -> None:
    """
    A nested namespace sees none of the container's other processes.
    """
    holder = container.start(ALLOCATE.format(mib=700) + "\nwait()")
    assert holder.stdout is not None
    assert "0\n" == holder.stdout.readline()
    with nested(container, 400) as result:
        assert 2 == result
    holder.kill()
    holder.communicate(timeout=60)

    with nested(container, 1000) as result:
        assert 0 == result


def test_first_processes_of_two_pid_namespaces_are_two(container: Container) -> None:
    """
    Both have pid 1. Each has its slot and its charge, and limits in use are not replaced.
    """
    with nested(container, 600) as first, nested(container, 300) as second:
        assert [0, 0] == [first, second]
        assert 2 == container.run(ALLOCATE.format(mib=200), CUDA_DEVICE_MEMORY_LIMIT="3000m")

    assert 0 == container.run(ALLOCATE.format(mib=1000))

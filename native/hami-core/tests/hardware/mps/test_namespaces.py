"""
Its namespaces, and who may change them.
"""

import subprocess

import pytest
from hardware.mps.node import NOT_PERMITTED, SUCCESS, TENANT, TERMINATED, Node, commands_of, needs_root, refusal, until
from hardware.process import Start

from testbed.driver.mps import MpsControl


def test_namespace_has_a_folder_and_limits(node: Node) -> None:
    """
    A field is asked for with dashes or with underscores.
    """
    folder = node.control.add_namespace("s", "n", 25)
    get = ("namespace", "get", "n", "s")

    assert node.control.pipe / "s/n" == folder
    assert (folder / "control").is_socket()
    assert str(folder) == node.control.ask(*get, "pipe_directory")
    assert "25.00" == node.control.ask(*get, "active-thread-percentage")
    assert "unlimited" == node.control.ask(*get, "pinned-memory-limit")
    assert "Namespace 'n' already exists in server 's'." == refusal(
        node.control, "namespace", "create", "n", "--server=s"
    )
    node.control.ask("namespace", "delete", "n", "--server=s")
    assert not folder.exists()


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        pytest.param((), "give at least one of", id="none"),
        pytest.param(("--active-thread-percentage=0",), "Invalid active thread percentage '0'", id="0"),
        pytest.param(("--active-thread-percentage=101",), "Invalid active thread percentage '101'", id="101"),
        pytest.param(("--pinned-memory-limit=4",), "Invalid pinned memory limit '4'", id="no unit"),
        pytest.param(("--weight=4",), "invalid option '--weight=4'", id="unknown"),
    ],
)
def test_setting_checks_its_options(node: Node, option: tuple[str, ...], reason: str) -> None:
    """
    At least one is needed.
    """
    assert reason in refusal(node.control, "namespace", "set", "default", "--server=s", *option)


def test_namespace_with_a_client_is_not_changed_and_not_deleted(node: Node) -> None:
    """
    With `--force` it is deleted, and its clients are terminated.
    """
    node.control.add_namespace("s", "n")
    client = node.client("s", "n")

    change = ("namespace", "set", "n", "--server=s", "--active-thread-percentage=50")
    assert "Namespace 'n' has active clients." == refusal(node.control, *change)
    assert "Namespace 'n' has active clients." == refusal(node.control, "namespace", "delete", "n", "--server=s")
    assert "Server 's' has active clients." == refusal(node.control, "server", "delete", "s")
    node.control.ask("namespace", "delete", "n", "--server=s", "--force")
    assert TERMINATED == client.ask("launch(1)")


def test_list_of_namespaces_has_their_servers_status(node: Node) -> None:
    """
    A table has headings in capitals.
    """
    node.control.ask("namespace", "create", "n", "--server=s")
    until(lambda: "Ready" == node.control.ask("server", "get", "s", "status"))
    lines = node.control.ask("namespace", "list", "--server=s").splitlines()

    assert lines[0].split("  ")[0] == "NAME"
    assert "SERVER STATUS PINNED MEMORY LIMIT ACTIVE THREAD PERCENTAGE" in lines[0]
    assert ["n", "default"] == [line.split()[0] for line in lines[1:]]
    assert ["n", "s", "Ready", "unlimited", "100.00"] == lines[1].split()[:5]


def test_rejected_command_fails_and_among_others_does_not(node: Node) -> None:
    """
    The exit status of commands on stdin only says that the daemon was there.
    """
    assert "Invalid command 'sm-partition list'" in refusal(node.control, "sm-partition", "list")
    done = node.control.run(commands="server list x\nserver get s name\n")

    assert (0, ["Server 'x' not found.", "s"]) == (done.returncode, done.stdout.splitlines())


@needs_root
def test_tenant_cannot_change_its_namespace_and_root_can(control: MpsControl, start: Start) -> None:
    """
    By the socket in the folder that its container has. Everybody may list.
    """
    control.start("-m")
    control.ask("server", "create", "s")
    folder = control.add_namespace("s", "n", 25)
    change = ("namespace", "set", "n", "--server=s", "--active-thread-percentage=100")
    leaf = {"CUDA_MPS_PIPE_DIRECTORY": str(folder)}

    refused = commands_of(control, TENANT, *change)
    listed = commands_of(control, TENANT, "namespace", "list", "--format=csv,noheader")
    others = [
        commands_of(control, TENANT, *words.split()).stdout
        for words in ("namespace delete n --server=s", "server delete s", "quit", "namespace create m --server=s")
    ]

    text = "Insufficient privileges for UID 60000. 'NAMESPACE SET' requires server owner."
    assert (1, text) == (refused.returncode, refused.stdout.strip())
    assert ["n", "default"] == [line.split(",")[0] for line in listed.stdout.splitlines()]
    assert all(answer.startswith("Insufficient privileges for UID 60000. '") for answer in others)
    tenant = Node(control, start).process("s", "n")
    tenant.ask(f"become({TENANT})")
    assert [[SUCCESS, SUCCESS], 26] == tenant.ask_all("join()", "multiprocessors()")
    tenant.kill()
    until(lambda: not control.rows("client", "list"))
    assert 0 == subprocess.run([control.program, *change], env=control.variables | leaf, check=False).returncode
    assert 108 == Node(control, start).client("s", "n").ask("multiprocessors()")


@needs_root
@pytest.mark.parametrize("folders", [(), ("s",), ("s", "default")])
def test_other_user_is_not_permitted_without_multiuser_mode(node: Node, folders: tuple[str, ...]) -> None:
    """
    Also root on a server of another user. On the main socket each user has a server.
    """
    other = node.process(*folders)
    other.ask(f"become({TENANT})")
    node.control.ask("server", "create", "theirs", f"--uid={TENANT}")

    assert (NOT_PERMITTED if folders else SUCCESS) == other.ask("start_mps()")
    assert NOT_PERMITTED == node.process("theirs").ask("start_mps()")

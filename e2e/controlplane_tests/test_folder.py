"""
The files of a cluster: its record, its certificates.
"""

import base64
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from controlplane.pki import Authority
from controlplane.record import FILE, Record, RecordError
from testbed.driver.hardware import TWO_NODES, FakeNode


def _record(*nodes: FakeNode) -> Record:
    record = Record("1.34", "/programs", 4321)
    for node in nodes:
        record = record.joined_by(node)
    return record


def test_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    """It includes the hardware. A folder without a record has none."""
    assert Record.read(tmp_path) is None
    _record(*TWO_NODES).write(tmp_path)

    assert _record(*TWO_NODES) == Record.read(tmp_path)


OTHER_CODES_RECORDS = [
    pytest.param(
        '{"kubernetes": "1.34", "programs": "/p", "port": 1, "nodes": {"a": {"index": 1, "hardware": '
        '{"name": "a", "gpus": [], "unknown": 1}}}}',
        id="unknown field",
    ),
    pytest.param('{"kubernetes": "1.34", "programs": "/p", "nodes": {}}', id="missing field"),
    pytest.param("", id="empty"),
    pytest.param("[]", id="list"),
]


@pytest.mark.parametrize("content", OTHER_CODES_RECORDS)
def test_record_of_other_code_is_named_in_one_error(tmp_path: Path, content: str) -> None:
    """A run of other code may have been killed and left one."""
    (tmp_path / FILE).write_text(content)

    with pytest.raises(RecordError, match=f"^{tmp_path / FILE} was not written by this code .*$"):
        Record.read(tmp_path)


def test_node_keeps_its_index_and_a_new_one_gets_the_first_free_one() -> None:
    """The index decides addresses, so those of existing nodes must not change."""
    record = _record(*TWO_NODES).joined_by(FakeNode("node-a", ()))
    assert {"node-a": 1, "node-b": 2} == {name: member.index for name, member in record.nodes.items()}
    assert () == record.nodes["node-a"].hardware.gpus

    record = record.without("node-a").joined_by(FakeNode("node-c", ()))

    assert {"node-b": 2, "node-c": 1} == {name: member.index for name, member in record.nodes.items()}


def test_certificate_has_a_user_its_groups_and_its_hosts(tmp_path: Path) -> None:
    """The API server reads the user from the common name, and the groups from the organisations."""
    pki = Authority(tmp_path / "pki")
    pki.issue("node-a", "system:node:node-a", ["system:nodes"], ["node-a", "10.99.0.11"])

    found = x509.load_pem_x509_certificate(pki.certificate("node-a").read_bytes())
    authority = x509.load_pem_x509_certificate(pki.certificate("ca").read_bytes())
    found.verify_directly_issued_by(authority)
    assert ["system:node:node-a"] == [name.value for name in found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    groups = found.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    assert ["system:nodes"] == [name.value for name in groups]
    hosts = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert ["node-a"] == hosts.get_values_for_type(x509.DNSName)
    assert ["10.99.0.11"] == [str(address) for address in hosts.get_values_for_type(x509.IPAddress)]


def test_certificates_are_kept(tmp_path: Path) -> None:
    """A restarted cluster is the same one, and only its owner can read the keys."""
    first = Authority(tmp_path / "pki")
    first.issue("admin", "admin")
    first.issue_key("service-accounts")
    before = {path.name: path.read_bytes() for path in first.folder.iterdir()}

    second = Authority(tmp_path / "pki")
    second.issue("admin", "admin")
    second.issue_key("service-accounts")

    assert before == {path.name: path.read_bytes() for path in second.folder.iterdir()}
    assert {0o600} == {path.stat().st_mode & 0o777 for path in second.folder.glob("*.key")}


def test_incomplete_certificate_is_made_again(tmp_path: Path) -> None:
    """A killed run leaves a key without a certificate."""
    pki = Authority(tmp_path / "pki")
    pki.issue("admin", "admin")
    pki.certificate("admin").unlink()

    pki.issue("admin", "admin")

    found = x509.load_pem_x509_certificate(pki.certificate("admin").read_bytes())
    found.verify_directly_issued_by(x509.load_pem_x509_certificate(pki.certificate("ca").read_bytes()))


def test_kubeconfig_is_self_contained(tmp_path: Path) -> None:
    """It works wherever it is copied to, and only its owner can read it."""
    pki = Authority(tmp_path / "pki")
    pki.issue("admin", "admin")

    path = pki.kubeconfig("admin", "https://127.0.0.1:1", tmp_path / "kubeconfig")

    config = yaml.safe_load(path.read_text())
    assert "https://127.0.0.1:1" == config["clusters"][0]["cluster"]["server"]
    user = config["users"][0]["user"]
    assert pki.certificate("admin").read_bytes() == base64.b64decode(user["client-certificate-data"])
    assert pki.key("admin").read_bytes() == base64.b64decode(user["client-key-data"])
    assert 0o600 == path.stat().st_mode & 0o777

"""
What the Secret should hold next: single decisions, and a law over years of failures.
"""

import base64
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hami_webhook.certificates import pki
from hami_webhook.certificates.pki import Bundle, CertificateError, Names, Pair, new_authority, new_certificate
from hami_webhook.certificates.renewal import (
    AUTHORITIES_MAX,
    OVERLAP,
    Material,
    Renewal,
    is_servable,
    read_material,
    renew,
    secret_data,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
NAMES = ("hami-webhook.hami.svc", "10.0.0.1", "::1")
NOTHING = Material()


def a_material(made: datetime = NOW, names: Names = NAMES) -> Material:
    """Return the material of a first renewal at *made*."""
    renewed = renew(NOTHING, NOTHING, (), names, made)
    assert renewed is not None
    return renewed.material


def renewed(found: Material, now: datetime, held: Material = NOTHING, published: Bundle | None = None) -> Renewal:
    """Return the renewal, which must exist."""
    bundle = found.bundle if published is None else published
    result = renew(found, held, bundle, NAMES, now)
    assert result is not None
    return result


def stays(found: Material, now: datetime, published: Bundle | None = None) -> bool:
    """Return whether the Secret is not changed."""
    return renew(found, NOTHING, found.bundle if published is None else published, NAMES, now) is None


def served(material: Material) -> pki.Certificate:
    """Return the served certificate of *material*."""
    assert material.serving is not None
    return material.serving.certificate


def signer(material: Material) -> Pair:
    """Return the authority of *material*."""
    assert material.authority is not None
    return material.authority


def test_an_empty_secret_gets_an_authority_and_a_certificate_of_it() -> None:
    """One write suffices."""
    result = renewed(NOTHING, NOW)

    assert "there is no authority with its key" == result.reason
    assert (signer(result.material).certificate,) == result.material.bundle
    assert set(NAMES) == set(pki.names_of(served(result.material)))
    assert stays(result.material, NOW)


def test_what_is_written_is_what_is_read() -> None:
    """A round trip through the Secret's data."""
    material = a_material()
    read, problems = read_material(secret_data(material))

    assert () == problems
    assert secret_data(material) == secret_data(read)


@pytest.mark.parametrize(
    ("age", "is_renewed"),
    [
        pytest.param(0 * DAY, False, id="new"),
        pytest.param(59 * DAY, False, id="two-thirds-not-over"),
        pytest.param(61 * DAY, True, id="two-thirds-over"),
        pytest.param(91 * DAY, True, id="over"),
    ],
)
def test_a_certificate_is_renewed_by_its_authority_after_two_thirds_of_its_life(
    age: timedelta, is_renewed: bool
) -> None:
    """Clients trust the authority already."""
    before = a_material()
    result = renew(before, NOTHING, before.bundle, NAMES, NOW + age)

    assert is_renewed == (result is not None)
    if result is not None:
        assert before.bundle == result.material.bundle
        assert NOW + age + 90 * DAY == served(result.material).not_valid_after_utc


def test_an_authority_is_replaced_while_a_third_of_its_life_is_left() -> None:
    """The new one is first in the bundle; the served certificate stays the old one's."""
    now = NOW + 2434 * DAY
    old = new_authority(NOW)
    before = Material((old.certificate,), old, new_certificate(old, NAMES, now - DAY))
    result = renewed(before, now)

    assert f"the authority ends {old.certificate.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}" == result.reason
    assert (signer(result.material).certificate, old.certificate) == result.material.bundle
    assert before.serving == result.material.serving


@pytest.mark.parametrize(
    ("age", "is_published", "is_signing"),
    [
        pytest.param(timedelta(0), True, False, id="too-early"),
        pytest.param(OVERLAP - timedelta(seconds=1), True, False, id="a-second-too-early"),
        pytest.param(OVERLAP, False, False, id="not-published"),
        pytest.param(OVERLAP, True, True, id="published-for-an-hour"),
    ],
)
def test_a_new_authority_signs_once_clients_had_an_hour_to_trust_it(
    age: timedelta, is_published: bool, is_signing: bool
) -> None:
    """Until then the old certificate stays."""
    old, new = new_authority(NOW - DAY), new_authority(NOW)
    before = Material((new.certificate, old.certificate), new, new_certificate(old, NAMES, NOW - DAY))
    published = before.bundle if is_published else (old.certificate,)
    result = renew(before, NOTHING, published, NAMES, NOW + age)

    assert is_signing == (result is not None)
    if result is not None:
        assert "the authority is new" == result.reason
        assert before.bundle == result.material.bundle
        assert is_servable(result.material, (new.certificate,), NOW + age)


def test_an_old_authority_goes_an_hour_after_nothing_it_signed_is_served_any_more() -> None:
    """The served certificate does not change."""
    old, new = new_authority(NOW - DAY), new_authority(NOW - DAY)
    before = Material((new.certificate, old.certificate), new, new_certificate(new, NAMES, NOW))

    assert stays(before, NOW + OVERLAP - timedelta(seconds=1))
    result = renewed(before, NOW + OVERLAP)
    assert "no served certificate needs the other authorities" == result.reason
    assert ((new.certificate,), before.serving) == (result.material.bundle, result.material.serving)


def test_what_is_published_stays_published_through_a_loss_that_nobody_remembers() -> None:
    """Another replica may still serve a certificate of it; expired authorities go."""
    old, over = new_authority(NOW - DAY), new_authority(NOW - 4000 * DAY)
    result = renewed(NOTHING, NOW, published=(over.certificate, old.certificate))

    assert (signer(result.material).certificate, old.certificate) == result.material.bundle


def test_a_bundle_does_not_grow_without_bound() -> None:
    """Replicas with wrong clocks make authorities that others reject."""
    many = tuple(new_authority(NOW - DAY).certificate for _ in range(20))

    assert AUTHORITIES_MAX == len(renewed(NOTHING, NOW, published=many).material.bundle)


def test_a_new_authority_signs_at_once_when_there_is_nothing_good_to_serve() -> None:
    """Waiting would not help."""
    new = new_authority(NOW)
    result = renewed(Material((new.certificate,), new, None), NOW, published=())

    assert "there is no certificate that the authorities signed" == result.reason
    assert is_servable(result.material, (new.certificate,), NOW)


@pytest.mark.parametrize("lost", ["ca.crt", "ca.key", "tls.crt", "tls.key"])
def test_any_lost_entry_is_made_anew_from_what_is_held(lost: str) -> None:
    """The trusted authorities stay trusted until the next renewal."""
    before = a_material()
    found, _ = read_material({**secret_data(before), lost: ""})
    result = renewed(found, NOW, held=before, published=before.bundle)

    assert before.bundle[0] in result.material.bundle
    assert is_servable(result.material, result.material.bundle, NOW)
    assert stays(result.material, NOW)
    if lost.startswith("ca"):
        assert served(before) == served(result.material)


@pytest.mark.parametrize("text", ["garbage", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
@pytest.mark.parametrize("name", ["ca.crt", "ca.key", "tls.crt", "tls.key"])
def test_what_cannot_be_read_is_named_and_counts_as_absent(name: str, text: str) -> None:
    """One sentence for each entry, without its contents."""
    data = {**secret_data(a_material()), name: base64.b64encode(text.encode()).decode()}
    _, problems = read_material(data)

    (problem,) = problems
    assert problem.startswith(f"{name}: ")
    assert "garbage" not in problem


def test_an_entry_that_is_not_base64_is_named() -> None:
    """An API server would reject it."""
    _, problems = read_material({"ca.crt": "*", "tls.crt": 7})

    assert ["ca.crt: is not base64", "tls.crt: is not base64"] == [problem[:22].rstrip(":") for problem in problems]


def test_a_key_of_another_certificate_is_named() -> None:
    """Such a pair cannot be served."""
    data = secret_data(a_material())
    swapped = {**data, "tls.key": data["ca.key"], "ca.key": data["tls.key"]}
    found, problems = read_material(swapped)

    assert (None, None) == (found.authority, found.serving)
    assert (
        "ca.key: is the key of no certificate beside it",
        "tls.key: is the key of no certificate beside it",
    ) == problems


def test_a_key_of_another_kind_is_named() -> None:
    """Not every Go client accepts Ed25519."""
    key = subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519"], capture_output=True, check=True).stdout
    with pytest.raises(CertificateError, match="must be an EC or RSA key, not Ed25519PrivateKey"):
        pki.read_key(key)


def test_missing_names_are_added_to_those_the_certificate_has() -> None:
    """Otherwise replicas with different names would replace each other's certificate for ever."""
    before = a_material(names=("old.hami.svc",))
    result = renewed(before, NOW)

    assert result.reason.startswith("the certificate is not valid for hami-webhook.hami.svc: ")
    assert {*NAMES, "old.hami.svc"} == set(pki.names_of(served(result.material)))
    assert stays(result.material, NOW)
    assert set(NAMES) == set(pki.names_of(served(renewed(result.material, NOW + 61 * DAY).material)))


def test_a_server_is_not_an_authority() -> None:
    """A server's certificate in place of the authority is replaced."""
    good = new_authority(NOW)
    server = new_certificate(good, NAMES, NOW)
    result = renewed(Material((server.certificate,), server, None), NOW, published=())

    assert "certificates of the authority are not valid" == result.reason
    assert server.certificate not in result.material.bundle
    assert stays(result.material, NOW)


def test_an_authority_of_the_future_is_replaced() -> None:
    """A replica with a wrong clock made it; clients reject it."""
    before = a_material(NOW + 10 * DAY)
    result = renewed(before, NOW)

    assert "the authority is not valid before 2026-01-10T23:00:00Z" == result.reason
    assert stays(result.material, NOW)


def test_nothing_is_servable_that_is_not_published_or_over() -> None:
    """Each condition alone suffices."""
    material = a_material()

    assert is_servable(material, material.bundle, NOW)
    assert not is_servable(material, (), NOW)
    assert not is_servable(material, (new_authority(NOW).certificate,), NOW)
    assert not is_servable(material, material.bundle, NOW + 91 * DAY)
    assert not is_servable(NOTHING, material.bundle, NOW)


def test_a_certificate_without_a_name_or_an_authority_is_refused() -> None:
    """An authority's own certificate has no name, and an empty bundle trusts no authority."""
    authority = new_authority(NOW)

    assert () == pki.names_of(authority.certificate)
    assert "without a name" == pki.problem((authority.certificate,), authority.certificate, (), NOW)
    assert "signed by no trusted authority" == pki.problem((), served(a_material()), NAMES, NOW)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl, the other implementation")
def test_openssl_accepts_what_is_signed(tmp_path: Path) -> None:
    """With strict checks, for each kind of name, and with another authority first in the bundle."""
    now = datetime.now(UTC)
    authority = new_authority(now)
    files = {"bundle": (new_authority(now).certificate, authority.certificate)}
    (tmp_path / "bundle").write_bytes(pki.bundle_pem(files["bundle"]))
    (tmp_path / "server").write_bytes(new_certificate(authority, NAMES, now).certificate_pem)
    for option in ("-verify_hostname=hami-webhook.hami.svc", "-verify_ip=10.0.0.1", "-verify_ip=::1"):
        subprocess.run(
            [
                *("openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", str(tmp_path / "bundle")),
                *option.split("="),
                str(tmp_path / "server"),
            ],
            check=True,
        )


STEP = st.one_of(
    st.tuples(st.just("wait"), st.sampled_from([timedelta(minutes=20), OVERLAP, 20 * DAY, 40 * DAY, 400 * DAY])),
    st.tuples(
        st.just("lose"), st.sampled_from([("ca.crt",), ("ca.key",), ("tls.crt",), ("tls.key",), ("ca.crt", "tls.crt")])
    ),
    st.tuples(st.just("restart"), st.integers(0, 1)),
    st.tuples(st.just("round"), st.integers(0, 1)),
    st.tuples(st.just("unpublish"), st.none()),
)


@pytest.mark.property
@settings(max_examples=30)
@given(st.lists(STEP, max_size=15))
def test_through_losses_restarts_and_years_no_replica_serves_what_is_not_trusted(
    steps: list[tuple[str, object]],
) -> None:
    """
    Two replicas, a Secret and a bundle.

    No round takes trust from what a replica serves, and hours later both serve the same, of one authority.
    """
    world = _World()
    for kind, argument in steps:
        getattr(world, kind)(argument)
    for _ in range(3):
        world.wait(2 * OVERLAP)
    world.settle()

    first, second = (secret_data(held) for held in world.held)
    assert first == second
    assert all(is_servable(held, world.published, world.now) for held in world.held)
    assert (signer(world.held[0]).certificate,) == world.published


class _World:
    """A Secret, a bundle, and the material of two replicas; a round changes them as `certificate_loop` does."""

    def __init__(self) -> None:
        self.now = NOW
        self.secret: dict[str, str] = {}
        self.published: Bundle = ()
        self.held = [NOTHING, NOTHING]

    def wait(self, time: object) -> None:
        """Replicas run a round each minute, so both run one within an hour."""
        assert isinstance(time, timedelta)
        self.settle()
        self.now += time

    def settle(self) -> None:
        for number in (0, 1, 0, 1):
            self.round(number)

    def lose(self, names: object) -> None:
        assert isinstance(names, tuple)
        self.secret = {name: text for name, text in self.secret.items() if name not in names}

    def restart(self, number: object) -> None:
        assert isinstance(number, int)
        self.held[number] = NOTHING

    def unpublish(self, _: object) -> None:
        self.published = ()
        self.settle()

    def round(self, number: object) -> None:
        assert isinstance(number, int)
        trusted = [held for held in self.held if is_servable(held, self.published, self.now)]
        found, _ = read_material(self.secret)
        result = renew(found, self.held[number], self.published, NAMES, self.now)
        if result is not None:
            self.secret = secret_data(result.material)
            found = result.material
        self.published = found.bundle
        assert all(is_servable(held, self.published, self.now) for held in trusted)
        if is_servable(found, self.published, self.now):
            self.held[number] = found

"""
Decide what the Secret of the webhook's certificate should hold, and what of it may be served.

`ca.crt` is the bundle that clients are told to trust, `ca.key` the key of the authority that signs, `tls.crt` and
`tls.key` what is served. Whatever is missing or cannot be used is made anew. A change of the authority passes through a
bundle of both, so that at no time anything is served that nobody vouches for.
Knows no clock, no API and no log. Neighbours: `certificates` makes and checks, `upkeep` reads and writes.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from hami_webhook import certificates
from hami_webhook.certificates import Bundle, CertificateError, Names, Pair

OVERLAP = timedelta(hours=1)
"""How long a new authority is published before it signs what replaces a certificate that is still good."""


@dataclass(frozen=True, slots=True)
class Material:
    """What a Secret holds, as far as it can be read."""

    bundle: Bundle = ()
    authority: Pair | None = None
    """The certificate of `bundle` that signs, and its key."""
    serving: Pair | None = None


@dataclass(frozen=True, slots=True)
class Renewal:
    """What the Secret should hold instead."""

    material: Material
    reason: str


def read_material(data: Mapping[str, Any]) -> tuple[Material, tuple[str, ...]]:
    """
    Return what the `data` of a Secret holds, and a sentence for each entry that is there and cannot be used.

    An entry that is absent or empty is no fault.
    """
    faults: list[str] = []

    def read(name: str) -> bytes:
        try:
            return base64.b64decode(data.get(name) or "", validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            faults.append(f"{name}: is not base64: {error}")
            return b""

    def bundle(name: str) -> Bundle:
        try:
            return certificates.read_bundle(text) if (text := read(name)) else ()
        except CertificateError as error:
            faults.append(f"{name}: {error}")
            return ()

    def pair(name: str, candidates: Bundle) -> Pair | None:
        try:
            found = certificates.pair_of(candidates, certificates.read_key(text)) if (text := read(name)) else None
        except CertificateError as error:
            faults.append(f"{name}: {error}")
            return None
        if text and candidates and found is None:
            faults.append(f"{name}: is the key of no certificate beside it")
        return found

    authorities, chain = bundle("ca.crt"), bundle("tls.crt")[:1]
    return Material(authorities, pair("ca.key", authorities), pair("tls.key", chain)), tuple(faults)


def secret_data(material: Material) -> dict[str, str]:
    """Return the entries of a Secret's `data` that hold *material*."""
    assert material.authority is not None
    assert material.serving is not None
    texts = {
        "ca.crt": certificates.bundle_pem(material.bundle),
        "ca.key": material.authority.key_pem,
        "tls.crt": material.serving.certificate_pem,
        "tls.key": material.serving.key_pem,
    }
    return {name: base64.b64encode(text).decode() for name, text in texts.items()}


def renew(found: Material, held: Material, published: Bundle, names: Names, now: datetime) -> Renewal | None:
    """
    Return what the Secret should hold in the place of *found*, None when it should stay.

    *held* is what this replica serves from, *published* what every client trusts, *names* what the server is called.
    A certificate that is good stays until what replaces it is trusted; from *held* if the Secret lost it.
    """
    reason = _authority_is_wanting(found.authority, now)
    if reason is None:
        assert found.authority is not None
        reason = _certificate_is_wanting(found, found.authority, published, names, now)
        if reason is None:
            return None
        renewed = _sign(found, held, found.authority, names, now)
        if certificates.objection(renewed.bundle, _shown(renewed), names, now) is None:
            return Renewal(renewed, reason)
        reason = "what the authority signs is not valid"
    return Renewal(_replace_authority(found, held, names, now), reason)


def is_servable(material: Material, published: Bundle, now: datetime) -> bool:
    """Return whether clients who trust *published* accept what *material* serves."""
    return bool(_vouchers(Material(published, None, material.serving), now))


def _authority_is_wanting(authority: Pair | None, now: datetime) -> str | None:
    """Return why there should be another authority."""
    if authority is None:
        return "there is no authority with its key"
    if now < authority.certificate.not_valid_before_utc:
        return f"the authority begins {authority.certificate.not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ} only"
    if certificates.is_two_thirds_over(authority.certificate, now):
        return f"the authority ends {authority.certificate.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}"
    return None


def _certificate_is_wanting(
    found: Material, authority: Pair, published: Bundle, names: Names, now: datetime
) -> str | None:
    """Return why *authority* should sign another certificate."""
    signers = _vouchers(found, now)
    if not signers:
        return "there is no certificate that the authorities vouch for"
    refused = certificates.objection(found.bundle, _shown(found), names, now)
    if refused is not None:
        return f"the certificate is {refused}"
    if authority.certificate not in signers:
        settled = authority.certificate.not_valid_before_utc + certificates.BACKDATING + OVERLAP
        return "the authority is new" if now >= settled and authority.certificate in published else None
    if certificates.is_two_thirds_over(_shown(found), now):
        return f"the certificate ends {_shown(found).not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}"
    return None


def _sign(found: Material, held: Material, authority: Pair, names: Names, now: datetime) -> Material:
    """
    Return *found* with a certificate of *authority*.

    Names that are missing are added to those the certificate has: replicas that were given different names would
    replace each other's certificate for ever otherwise. Names nobody needs go when the certificate's time is over.
    """
    signers = _vouchers(found, now)
    if signers and not certificates.is_two_thirds_over(_shown(found), now):
        present = certificates.names_of(_shown(found))
        good = (name for name in present if certificates.objection(signers, _shown(found), (name,), now) is None)
        names = tuple(dict.fromkeys((*names, *good)))
    in_use = signers or _vouchers(held, now)
    bundle = tuple(dict.fromkeys((authority.certificate, *in_use)))
    return Material(bundle, authority, certificates.new_certificate(authority, names, now))


def _replace_authority(found: Material, held: Material, names: Names, now: datetime) -> Material:
    """Return a new authority beside those that vouch for what is served, which goes on being served."""
    authority = certificates.new_authority(now)
    for material in (found, held):
        if signers := _vouchers(material, now):
            return Material((authority.certificate, *signers), authority, material.serving)
    return Material((authority.certificate,), authority, certificates.new_certificate(authority, names, now))


def _vouchers(material: Material, now: datetime) -> Bundle:
    """Return those authorities of *material* that vouch for what it serves; none where it serves nothing."""
    return () if material.serving is None else certificates.vouchers(material.bundle, _shown(material), now)


def _shown(material: Material) -> certificates.Certificate:
    assert material.serving is not None
    return material.serving.certificate

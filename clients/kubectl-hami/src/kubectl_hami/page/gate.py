"""
Decide which requests the page's server answers.

Other users of the machine and pages of other sites can reach a port on loopback. The first lack the token. A browser
sends the second's requests with their own name as Host (DNS rebinding), or without the cookie. Knows no socket.
"""

import hmac
from dataclasses import dataclass

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Gate:
    """What a request has to know."""

    port: int
    token: str
    """Random, in the address that the command prints."""

    @property
    def address(self) -> str:
        """The address to open. The browser gets a cookie there and forgets the token."""
        return f"http://{LOOPBACK}:{self.port}/?token={self.token}"

    @property
    def cookie(self) -> str:
        """The header that gives a browser the token. Cookies do not know ports, so its name has the port."""
        return f"{self._name}={self.token}; HttpOnly; SameSite=Strict; Path=/"

    @property
    def _name(self) -> str:
        return f"hami-ui-{self.port}"

    def knows_host(self, host: str) -> bool:
        """Return whether the header Host names this server, as no page of another site can."""
        return host in {f"{name}:{self.port}" for name in (LOOPBACK, "localhost")}

    def knows_origin(self, origin: str) -> bool:
        """Return whether the header Origin names this server. Another port of this host has the same cookies."""
        return origin.startswith("http://") and self.knows_host(origin.removeprefix("http://"))

    def knows_token(self, token: str) -> bool:
        """Return whether *token* is the one of this server."""
        return hmac.compare_digest(token.encode(), self.token.encode())

    def knows_cookie(self, header: str) -> bool:
        """Return whether the header Cookie has the token, whatever other programs of this host have put beside it."""
        pairs = (pair.partition("=") for pair in header.split(";"))
        return any(name.strip() == self._name and self.knows_token(value.strip()) for name, _, value in pairs)

"""
A question to the driver, its answers, and how a real one compares with the fake one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from gpu.questions.host import HangError, Host

HANGS = "hangs"
"""The answer of a program that does not end in time. It is never kinder."""


class Verdict(StrEnum):
    """How the answer of a driver compares with that of the fake one, for whoever relies on a share that holds."""

    AS_ASSUMED = "as assumed"
    KINDER = "kinder than assumed"
    HARDER = "harder than assumed"


@dataclass(frozen=True)
class Question:
    """One question."""

    name: str
    text: str
    assumed: str
    """The answer of the fake driver."""
    kinder: tuple[str, ...]
    """The answers with which a share holds at least as well. Every other one is harder."""
    ask: Callable[[Host], str]
    """Returns the answer. Raises: NotTriedError, HangError."""

    def answer(self, host: Host) -> str:
        """Ask *host*, and put back what that changed. Raises: NotTriedError."""
        with host.restored():
            try:
                return self.ask(host)
            except HangError:
                return HANGS

    def verdict(self, found: str) -> Verdict:
        """Compare the answer *found* with that of the fake driver."""
        if found == self.assumed:
            return Verdict.AS_ASSUMED
        return Verdict.KINDER if found in self.kinder else Verdict.HARDER


def question(assumed: str, *, kinder: tuple[str, ...] = ()) -> Callable[[Callable[[Host], str]], Question]:
    """Make a question of a function: its name with dashes, and the first line of its docstring."""

    def made(ask: Callable[[Host], str]) -> Question:
        text = (ask.__doc__ or "").strip().splitlines()[0]
        return Question(ask.__name__.replace("_", "-"), text, assumed, kinder, ask)

    return made

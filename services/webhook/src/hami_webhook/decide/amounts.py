"""
Check the amounts of a container's resources against what a device can have.

An amount that can never be granted is rejected here, where the Pod's author sees it. Otherwise the Pod would wait for
ever.
Neighbours: `rules` has each vendor's bounds; a vendor's own module checks amounts that depend on each other.
"""

from dataclasses import dataclass
from fractions import Fraction

from hami_webhook.decide.pod import Container
from hamicommon.errors import HamiError
from hamicommon.vendors.amounts import TEXT_SHOWN, unit_advice
from hamicommon.vendors.description import Vendor, amount
from hamicommon.wire.quantity import INT32_MAX, QuantityError, parse_quantity


class AmountError(HamiError):
    """A container requests an amount that no device can have; the message starts with HAMi's if HAMi rejects it too."""


@dataclass(frozen=True, slots=True)
class Words:
    """The start of HAMi's message for an amount; empty if HAMi admits the amount."""

    fraction: str = ""
    """For an amount that is not an integer."""
    less: str = ""
    """For an integer below the least."""
    more: str = ""
    """For an integer above the most."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The integers that one resource may have."""

    name: str
    most: int = INT32_MAX
    """HAMi counts in 32 bits, and wraps larger numbers."""
    least: int = 0
    unit_mib: int = 0
    """The meaning of 1, for a resource that is memory; 0 for others."""
    words: Words = Words()

    @classmethod
    def memory(cls, name: str, unit_mib: int = 1) -> "Bound":
        """Return the bound of memory in units of *unit_mib*."""
        return cls(name, INT32_MAX // max(1, unit_mib), unit_mib=max(1, unit_mib))

    def check(self, container: Container) -> None:
        """
        Check the amount in *container*.

        Raises:
            AmountError: it is not one of these integers.
        """
        value = _amount(container, self.name)
        if value is None or (isinstance(value, int) and self.least <= value <= self.most):
            return
        words = self._words(value)
        if words:
            refusal = f"{words}: container {container.name} asks for {_shown(container, self.name)}, write"
        else:
            refusal = f"invalid {_place(container, self.name)}: must be"
        text = amount(container.resources, self.name)
        advice = unit_advice(text, self.unit_mib, self.most) if self.unit_mib else ""
        raise AmountError(f"{refusal} an integer between {self.least} and {self.most}{advice}")

    def _words(self, refused: int | Fraction | str) -> str:
        if not isinstance(refused, int):
            return self.words.fraction
        return self.words.less if refused < self.least else self.words.more


def bounds_of(vendor: Vendor) -> tuple[Bound, ...]:
    """Return the bounds of count, memory and cores that most vendors have."""
    return (
        *(Bound(name) for name in vendor.resource_names[:1]),
        Bound.memory(vendor.memory_resource_name, vendor.memory_factor),
        Bound(vendor.core_resource_name),
    )


def whole(container: Container, name: str) -> int | None:
    """
    Return the limit of *name* in *container*, or else its request; None if it has neither.

    Raises:
        AmountError: the amount is not an integer.
    """
    value = _amount(container, name)
    if value is None or isinstance(value, int):
        return value
    raise AmountError(
        f"invalid {name} value {_shown(container, name)} in container {container.name}: must be an integer"
    )


def _amount(container: Container, name: str) -> int | Fraction | str | None:
    """Return the amount: an int, a Fraction, or the text itself if it is not a quantity."""
    text = amount(container.resources, name)
    if text is None:
        return None
    try:
        value = parse_quantity(text)
    except QuantityError:
        return str(text)
    return int(value) if value.denominator == 1 else value


def _place(container: Container, name: str) -> str:
    return f"{name} value {_shown(container, name)} in container {container.name}"


def _shown(container: Container, name: str) -> str:
    return str(amount(container.resources, name))[:TEXT_SHOWN]

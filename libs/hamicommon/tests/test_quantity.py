"""
Quantities: exact amounts, and the integers that Go reads.
"""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hamicommon.wire.quantity import INT64_MAX, QuantityError, parse_quantity, rounded, whole


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", 0), ("1", 1), ("+1", 1), ("-1", -1), ("007", 7), ("1.5", Fraction(3, 2)), (".5", Fraction(1, 2)),
        ("1.", 1), ("1500m", Fraction(3, 2)),
        ("1u", Fraction(1, 10**6)), ("1n", Fraction(1, 10**9)), ("3k", 3000), ("1E", 10**18),
        ("1Ki", 1024), ("1.5Gi", 3 * 2**29), ("1e3", 1000), ("1E3", 1000), ("1e-3", Fraction(1, 1000)), (5, 5),
        (" 5 ", 5),
    ],
)  # fmt: skip
def test_every_suffix_means_what_the_api_says(text: str | int, amount: Fraction) -> None:
    """Decimal, binary and exponent forms."""
    assert amount == parse_quantity(text)


@pytest.mark.parametrize(
    "text", ["", "-", ".", "k", "1 k", "1K", "1ki", "0x10", "1e", "1.2.3", "1e1.5", "NaN", "١", "1" * 300]
)
def test_what_is_no_quantity_is_refused(text: str) -> None:
    """Also texts that other parsers of numbers accept."""
    with pytest.raises(QuantityError, match="is not a quantity"):
        parse_quantity(text)


@pytest.mark.parametrize("value", [None, True, 1.5, [], {}])
def test_what_is_no_text_is_refused(value: object) -> None:
    """A hostile object can have any value as an amount."""
    with pytest.raises(QuantityError):
        parse_quantity(value)  # type: ignore[arg-type]
    assert whole(value) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "amount"),
    [("1e999999999", INT64_MAX), ("-1e99", -INT64_MAX), ("9" * 200, INT64_MAX), ("1e-999999999", Fraction(1, 10**9))],
)
def test_extremes_saturate_without_effort(text: str, amount: Fraction) -> None:
    """An exponent of a billion costs no more than one of three."""
    assert amount == parse_quantity(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0), ("00", 0), ("4", 4), ("-5", -5), ("4k", 4000), ("1.5k", 1500), ("16Gi", 2**34), ("1e3", 1000),
        ("1Ti", 2**40), ("1E", 10**18), ("4294967297", 4294967297), ("999999999999999999", 10**18 - 1),
        ("1.0", None), ("0.0", None), ("1000m", None), ("0.5", None), ("1.5Ki", None), ("100Ti", None), ("1Pi", None),
        ("9223372036854775807", None), ("10E", None), ("nonsense", None),
    ],
)  # fmt: skip
def test_whole_says_what_go_says(text: str, value: int | None) -> None:
    """Also for whole amounts that Go refuses."""
    assert value == whole(text)


@pytest.mark.parametrize(("text", "value"), [("500m", 1), ("-500m", -1), ("1500m", 2), ("3", 3), ("0", 0)])
def test_rounded_goes_away_from_zero(text: str, value: int) -> None:
    """As the API server rounds."""
    assert value == rounded(text)


@pytest.mark.property
@given(st.text(max_size=40))
def test_any_text_is_a_quantity_or_a_quantity_error(text: str) -> None:
    """No text makes the parser fail in another way, and both views agree on it."""
    try:
        amount = parse_quantity(text)
    except QuantityError:
        assert whole(text) is None
        return
    value = whole(text)
    assert value is None or amount == value


@pytest.mark.property
@given(st.integers(-(10**17), 10**17), st.sampled_from(["", "k", "M", "Ki", "Mi"]))
def test_integers_with_suffixes_are_exact(number: int, suffix: str) -> None:
    """No rounding where none is needed."""
    factor = {"": 1, "k": 10**3, "M": 10**6, "Ki": 2**10, "Mi": 2**20}[suffix]
    expected = number * factor
    assert max(-INT64_MAX, min(INT64_MAX, expected)) == parse_quantity(f"{number}{suffix}")


@pytest.mark.parametrize("text", ["1e20", "10e19", "1e1000000"])
def test_exponent_that_no_integer_holds_is_not_whole(text: str) -> None:
    """It is refused without a computation, as are nineteen digits."""
    assert whole(text) is None

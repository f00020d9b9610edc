"""What a label selector is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_scheduler.config import misspelling


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "gpu", "!gpu", "! gpu", "gpu=on", "gpu==on", "gpu!=on", "gpu=", "1m", " a = b , c ", "a<5", "a > 5"),
        *("a in (b,c),d=e", "a notin ( b , c )", "a in(b)", "a in ()", "nvidia.com/gpu.present=true"),
        f"a.b/{'x' * 63}={'y' * 63}",
    ],
)
def test_kubernetes_selectors_are_taken(text: str) -> None:
    """All forms of a requirement, with blanks where they may be."""
    assert None is misspelling(text)


@pytest.mark.parametrize(
    ("text", "piece"),
    [
        *[(text, text) for text in ("a=b=c", "=b", "a b", "a=b c", "a in b", "a in (b c)", "a in (b", "(a", "!a=b")],
        *[(text, text) for text in ("-a", "a-", "/x", "a/", "a/b/c", "A.b/c", "a=$(X)", "{}", "a>x", "gpu=on;b")],
        *[(text, text) for text in ("x" * 64, f"a={'y' * 64}", f"{'a.' * 126}abc/x")],
        *[("a=b,", ""), ("a,,b", ""), (",a", ""), ("a=b, c=d=e, f", "c=d=e"), ("a in (b,c),d e", "d e")],
    ],
)
def test_piece_that_is_no_requirement_is_named(text: str, piece: str) -> None:
    """So that the one of many is found."""
    assert piece == misspelling(text)


@pytest.mark.property
@given(st.text(st.sampled_from("ab=!(),<> /.-in"), max_size=30))
def test_any_text_is_a_selector_or_none(text: str) -> None:
    """And what it is called is a part of it."""
    piece = misspelling(text)

    assert piece is None or piece in text

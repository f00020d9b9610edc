"""The second opinion itself: what it says where anybody can see the answer."""

from .support.reference import Ask, Card, Held, fits, fullness, peak, placements

CARDS = (Card("a", (2, 1000, 100)), Card("b", (2, 500, 100)))


def test_peak_is_the_worst_moment() -> None:
    """An init container runs beside the sidecar before it, and before the app container."""
    held = Held("n", "d", (("sidecar", (("a", 100, 0),)), ("init", (("a", 700, 0),)), ("app", (("a", 200, 0),))))

    assert {"a": (2, 800, 0)} == peak(held)
    assert {"a": (2, 300, 0)} == peak(Held("n", "d", held.containers, inits_are_done=True))


def test_every_choice_is_tried() -> None:
    """The larger share fits only if the smaller one leaves the larger device."""
    asks = (Ask("app", 1, 400, 0), Ask("app", 1, 900, 0))

    assert [(("b",), ("a",))] == list(placements(CARDS, {}, asks))


def test_limits_of_the_namespace_count() -> None:
    """What it holds already, and what it would hold."""
    held = [Held("n", "d", (("app", (("a", 100, 0),)),))]

    assert fits(CARDS, held, "n", "d", (Ask("app", 1, 300, 0),), {"d": 400})
    assert not fits(CARDS, held, "n", "d", (Ask("app", 1, 301, 0),), {"d": 400})


def test_fullness_adds_the_three_ratios() -> None:
    """A half, a third and a quarter."""
    assert 10 * (1 / 2 + 1 / 4 + 1 / 4) == float(fullness([Card("a", (2, 400, 100))], {"a": (1, 100, 25)}))

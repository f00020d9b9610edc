"""
Take devices group by group, where devices of one group are better together.

Neighbours: `vastai` groups dies by card, `ascend` devices by network.
"""

from collections.abc import Callable, Hashable, Sequence

from hami_scheduler.values.fit import Offer


def largest_groups_first(
    offers: Sequence[Offer], count: int, group_of: Callable[[Offer], Hashable | None]
) -> Sequence[Offer] | None:
    """
    Return *count* of *offers*, those of the largest group first; None where they are too few.

    Of equal groups the one offered first wins. With no choice, everybody is taken; with one, whoever has no group is
    left out.
    """
    if len(offers) <= count:
        return list(offers) if len(offers) == count else None
    groups: dict[Hashable, list[Offer]] = {}
    for offer in offers:
        group = group_of(offer)
        if group is not None:
            groups.setdefault(group, []).append(offer)
    by_size = sorted(groups.values(), key=len, reverse=True)
    chosen = [offer for group in by_size for offer in group][:count]
    return chosen if len(chosen) == count else None

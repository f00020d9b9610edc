"""
Choose devices group by group: devices of one group work better together.

Neighbours: `vastai` groups dies by card, `ascend` devices by network.
"""

from collections.abc import Callable, Hashable, Sequence

from hami_scheduler.values.fit import Offer


def largest_groups_first(
    offers: Sequence[Offer], count: int, group_of: Callable[[Offer], Hashable | None]
) -> Sequence[Offer] | None:
    """
    Return *count* of *offers*, those of the largest group first; None if they are too few.

    Of equal groups the one offered first wins. If there are exactly *count* offers, all are taken. If there are more,
    those without a group are left out.
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

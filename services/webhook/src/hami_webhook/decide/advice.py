"""
Warn of names and amounts in an admitted Pod that its author probably did not mean.

Nothing is refused for them, because other software may read a name that is unknown here. A Pod can have thousands of
names, so only the first few unknown ones are looked at.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice

from hami_webhook.decide.pod import Pod
from hamicommon.vendors.description import Vendor
from hamicommon.wire import keys

NAMES_CHECKED = 8
"""Of each Pod: unknown resources, and unknown annotations."""
NAME_MAX = 64
"""A longer name is not misspelled."""
_LIKENESS = 0.75
"""Ratio of `difflib`. gpumemory is like gpumem, mig-1g.5gb is not like gpu."""

_COMMON = tuple(text for name, text in vars(keys).items() if name.isupper() and "/" in text)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The names that the services read."""

    resources: frozenset[str]
    author_annotations: frozenset[str]
    """What a Pod's author writes."""
    annotations: frozenset[str]
    """The author's annotations, and those that services write."""

    @classmethod
    def of(cls, vendors: Collection[Vendor]) -> "Vocabulary":
        """Return the names of *vendors* and those that all share."""
        resources = frozenset(name for vendor in vendors for name in vendor.resource_names)
        author = frozenset(key for vendor in vendors for key in vendor.author_annotations).union(keys.AUTHOR_KEYS)
        return cls(resources, author, author.union(_COMMON, *(vendor.annotations for vendor in vendors)))


def misspelled(pod: Pod, vocabulary: Vocabulary) -> Iterator[str]:
    """Yield a sentence for each unknown resource and annotation of *pod* that is nearly a known one."""
    owners: dict[str, str] = {}
    for container in pod.all_containers():
        for name in (*container.limits, *container.requests):
            owners.setdefault(name, container.name)
    for name, meant in _nearly(owners, vocabulary.resources, vocabulary.resources):
        yield f"container {owners[name]}: {name} is no resource of the device config; did you mean {meant}?"
    for key, meant in _nearly(pod.annotations, vocabulary.annotations, vocabulary.author_annotations):
        yield f"annotation {key}: nothing reads it; did you mean {meant}?"


def unknown_demand(pod: Pod) -> Iterator[str]:
    """Yield a sentence if the annotation `hami.io/enforcement` of *pod* has an unknown value."""
    wanted = pod.annotations.get(keys.ENFORCEMENT, "")
    if wanted not in ("", keys.ENFORCEMENT_DRIVER):
        yield (
            f"annotation {keys.ENFORCEMENT}: is {wanted[:NAME_MAX]!r}, it must be {keys.ENFORCEMENT_DRIVER!r} or "
            "absent; no container with a share will start"
        )


@lru_cache(maxsize=8)
def _by_domain(names: frozenset[str]) -> dict[str, list[str]]:
    """Return the names of each domain without it. A vocabulary changes only with the device config."""
    found: dict[str, list[str]] = {}
    for name in sorted(names):
        domain, _, rest = name.rpartition("/")
        found.setdefault(domain, []).append(rest)
    return found


def _nearly(names: Iterable[str], known: Collection[str], wanted: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Yield each of *names* that is not *known*, with the one of *wanted* in the same domain that is most like it."""
    by_domain = _by_domain(wanted)
    unknown = (name for name in names if name not in known and len(name) <= NAME_MAX)
    strange = (name for name in unknown if name.rpartition("/")[0] in by_domain)
    for name in islice(strange, NAMES_CHECKED):
        domain, _, rest = name.rpartition("/")
        for meant in get_close_matches(rest, by_domain[domain], n=1, cutoff=_LIKENESS):
            yield name, f"{domain}/{meant}"

"""
The targets accept what peers write, and what is wrong is found, shown and repeatable.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz import native, results, targets
from fuzz.bounds import MIB_MAX, BoundError, bounded
from fuzz.json_mutator import JsonMutator
from fuzz.results import Finding, Progress, Result

LOG = """\
#42	INITED cov: 1850 ft: 4297 corp: 39/54Kb exec/s: 0 rss: 91Mb
#163	NEW    cov: 1913 ft: 4791 corp: 66/163Kb lim: 65536 exec/s: 54 rss: 91Mb L: 284/61174 MS: 1 Custom-
"""
STATS = "stat::number_of_executed_units: 200\nstat::new_units_added:          24\n"
EXAMPLES = [b'{"spec":{"nodeName":"n1","containers":[{"name":"c"}]}}', b'{"NodeNames":["n1",null]}']


@pytest.mark.parametrize("name", targets.NAMES)
def test_target_accepts_its_seeds(name: str) -> None:
    """Each promise of a target holds for the forms that peers really write."""
    target = targets.load(name)
    seeds = list(target.seeds())
    assert seeds

    for text in seeds:
        target.check(text)


@pytest.mark.parametrize("name", native.TARGETS)
def test_program_has_seeds(name: str) -> None:
    """Without any, libFuzzer begins with the empty input."""
    assert list(native.TARGETS[name].seeds())


def test_costly_input_is_a_finding() -> None:
    """The size of the input and what it took are in the message."""
    with pytest.raises(BoundError, match=r"3 bytes take .* MiB, more than 128"):
        bounded(lambda _: print(len(bytearray(MIB_MAX * 4 * 2**20))))(b"abc")


@pytest.mark.property
@given(seed=st.integers(0, 2**32 - 1), text=st.sampled_from([*EXAMPLES, b"", b"[", b"5"]))
def test_changed_json_is_repeatable_and_bounded(seed: int, text: bytes) -> None:
    """The seed decides alone, so that a run can be repeated."""
    mutator = JsonMutator(EXAMPLES, lambda data, most: (data + b"x")[:most])

    changed = mutator(text, 4096, seed)

    assert changed == JsonMutator(EXAMPLES, lambda data, most: (data + b"x")[:most])(text, 4096, seed)
    assert len(changed) <= 4096


def test_most_changed_objects_are_objects() -> None:
    """A reader of objects is reached."""
    mutator = JsonMutator(EXAMPLES, lambda data, _most: data[::-1])

    changed = [mutator(EXAMPLES[0], 4096, seed) for seed in range(200)]

    assert sum(text.startswith(b"{") and isinstance(json.loads(text), dict) for text in changed) > 150
    assert len(set(changed)) > 100


def test_log_of_a_run_that_ended_well() -> None:
    """The last status and the statistics count."""
    assert Progress(200, 1913, 4791, 24) == results.progress(LOG + STATS)


@pytest.mark.parametrize(
    ("log", "problem"),
    [
        (
            "\n === Uncaught Python exception: ===\nTypeError: unhashable type: 'list'\nTraceback",
            "TypeError: unhashable",
        ),
        ("==1== ERROR: AddressSanitizer: heap-buffer-overflow on address 0x1", "heap-buffer-overflow"),
        ("a.c:7:3: runtime error: signed integer overflow: 1", "signed integer overflow"),
        ("==1== ERROR: libFuzzer: timeout after 30 seconds", "timeout after 30 seconds"),
        ("ERROR: broken: file.devices >= 0 (a.c:3)", "broken: file.devices >= 0"),
    ],
)
def test_first_line_of_a_problem_is_shown(log: str, problem: str) -> None:
    """Whoever found it."""
    assert results.progress(f"{LOG}{log}\n{STATS}").problem.startswith(problem)


def test_table_is_aligned_and_lists_findings_and_what_was_skipped() -> None:
    """The file has the same."""
    found = Finding(
        "TypeError: x", "build/fuzz/pod/crash-1", "python -m fuzz --target pod --replay build/fuzz/pod/crash-1"
    )
    shown = [
        Result("pod", 7, 2.0, 30_000, 500, 1200, 12, (found,)),
        Result("native_options", 7, 1.0, 200, 5, 6),
        Result("review", 7, 0.0, skipped="no wheel"),
    ]

    heads, pod, options, *notes = results.table(shown).splitlines()

    assert heads.split() == ["target", "inputs", "inputs/s", "edges", "features", "new", "findings", "seed"]
    assert pod.split() == ["pod", "30,000", "15,000", "500", "1,200", "12", "1", "7"]
    assert len(heads) == len(pod) == len(options)
    assert notes == ["pod: TypeError: x", f"    {found.replay}", "skipped: review: no wheel"]

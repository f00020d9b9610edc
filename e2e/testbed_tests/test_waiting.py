"""
Waits end with what a probe answers, or with the reason why it never did.
"""

from unittest.mock import Mock

import pytest

from testbed.waiting import NestedWaitError, NotInTimeError, eventually


async def test_wait_ends_with_the_first_true_answer() -> None:
    """Errors and false answers count as "not yet"."""
    probe = Mock(side_effect=[OSError("no server"), 0, 7])

    assert 7 == await eventually(probe)


async def test_wait_that_ends_without_an_answer_says_the_last_one() -> None:
    """The message names what was waited for, and the last error is the cause."""

    async def ask() -> bool:
        raise OSError("no server")

    with pytest.raises(NotInTimeError, match=r"^the server answers: .*no server") as caught:
        await eventually(ask, "the server answers", seconds=0.01)

    assert isinstance(caught.value.__cause__, OSError)


async def test_probe_may_not_wait() -> None:
    """The shorter limit of an inner wait would end the outer one."""

    async def ask() -> bool:
        return await eventually(lambda: True, "the other server answers")

    with pytest.raises(NestedWaitError, match="the other server answers"):
        await eventually(ask)

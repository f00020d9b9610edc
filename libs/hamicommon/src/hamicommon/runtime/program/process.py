"""
The process of a service: run, drain on SIGTERM, and exit with a code.

A second signal ends the process immediately.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator

import structlog

from hamicommon.errors import HamiError

logger = structlog.get_logger()


def refuse(name: str, error: HamiError) -> int:
    """Print to stderr in one line why *name* cannot start, and return the exit code."""
    sys.stderr.write(f"{name}: {error}\n")
    return 1


def run(
    main: Callable[[], Awaitable[None]],
    name: str,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> int:
    """
    Run *main* until it returns or a signal cancels it, and return the process's exit code.

    *loop_factory* makes the event loop; without it, the loop is asyncio's. The code is 0 after a return or a signal. It
    is 1 after an error, which is logged in one line if it is a `HamiError`, else with a traceback. *main* drains when
    it is cancelled.
    """
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(_until_signalled(main, name))
    except BaseException as error:
        expected = list(_expected(error))
        for problem in expected:
            logger.error("Stopped by an error", service=name, error=str(problem))
        if not expected:
            logger.error("Stopped by a bug", service=name, exc_info=error)
        return 1
    return 0


async def _until_signalled(main: Callable[[], Awaitable[None]], name: str) -> None:
    task = asyncio.ensure_future(main())
    signalled = False

    def on_signal(number: signal.Signals) -> None:
        nonlocal signalled
        if signalled:
            logger.warning("Second signal, exiting immediately", service=name, signal=number.name)
            os._exit(1)
        signalled = True
        logger.info("Draining", service=name, signal=number.name)
        task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    try:
        await task
    except asyncio.CancelledError:
        if not signalled:
            raise
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
    logger.info("Stopped", service=name)


def _expected(error: BaseException) -> Iterator[HamiError]:
    """Yield the HamiErrors in *error* if it has no others."""
    if isinstance(error, HamiError):
        yield error
    elif isinstance(error, BaseExceptionGroup):
        _, rest = error.split(HamiError)
        if rest is None:
            for inner in error.exceptions:
                yield from _expected(inner)

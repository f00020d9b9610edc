"""
Structured logs: the event is a sentence, the facts are keys. JSON, or columns on a terminal.

Modules use `logger = structlog.get_logger()`. Only a service's `main` calls `configure`.
"""

import logging
import sys
from typing import Any

import orjson
import structlog

DEBUG_VERBOSITY = 4
"""klog's convention: `-v=4` and above shows debug lines."""


def configure(verbosity: int, json: bool | None = None) -> None:
    """
    Write all logs to stderr, with debug lines from verbosity 4 on.

    The format is JSON unless stderr is a terminal; *json* selects it explicitly. Logs of libraries are included from
    WARNING on.
    """
    as_json = not sys.stderr.isatty() if json is None else json
    level = logging.DEBUG if verbosity >= DEBUG_VERBOSITY else logging.INFO
    before: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    after: list[structlog.typing.Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(serializer=_to_json)]
        if as_json
        else [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    )
    structlog.configure(
        processors=[*before, *after],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=before, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *after]
        )
    )
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)


def _to_json(event: Any, **_: Any) -> str:
    return orjson.dumps(event, default=str, option=orjson.OPT_NON_STR_KEYS).decode()

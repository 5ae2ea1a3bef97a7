"""What Spark's JVM and the tasks write to stderr, brought into the service's own log."""

import json
import logging
import threading
from pathlib import Path
from typing import IO

NOISE = (
    "Setting default log level",
    "To adjust logging level",
    "Setting Spark log level",
    "WARNING: Using incubator",
)
_SPARK = logging.getLogger("twinlog_source.spark")


def follow(stream: IO[bytes]) -> threading.Thread:
    """Start to follow a JVM's stderr, to its end: a daemon thread, as the stream blocks."""
    thread = threading.Thread(target=_follow, args=(stream,), name="spark-log", daemon=True)
    thread.start()
    return thread


def silence_py4j() -> None:
    """Keep py4j's tracebacks out of the log: what a lost JVM means is said by us, once and in words. py4j
    writes to loggers of its own and, now and then, to the root logger itself.
    """
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_from_py4j)


def _is_not_from_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def _follow(stream: IO[bytes]) -> None:
    with stream:
        for line in stream:
            _pass_on(line.decode(errors="replace").rstrip())


def _pass_on(line: str) -> None:
    """Tasks' lines keep their event and keys; the JVM's own are warnings, its greetings are dropped."""
    if line.startswith("{"):
        try:
            entry = json.loads(line)
            level = logging.getLevelNamesMapping()[str(entry.pop("level", "info")).upper()]
        except (ValueError, KeyError, AttributeError):
            _SPARK.warning(line)
            return
        for ours in ("time", "version", "service"):
            entry.pop(ours, None)
        event, name = str(entry.pop("event", "")), str(entry.pop("logger", "twinlog_source.task"))
        details = {
            key if key not in ("name", "message", "args") else f"task_{key}": value
            for key, value in entry.items()
        }
        logging.getLogger(name).log(level, event, extra=details)
    elif line and not line.startswith(NOISE):
        _SPARK.warning(line)

"""Forwards the stderr of Spark's JVM and of the tasks to the service's log."""

import logging
import re
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from twinlog import strange_json

NOISE = (
    "Picked up ",  # The environment's options verbatim, which may include passwords.
    "NOTE: Picked up ",
    "Setting default log level",
    "To adjust logging level",
    "Setting Spark log level",
    "WARNING: Using incubator",
)
NO_REASON = (
    *NOISE,
    "Error: Could not create the Java Virtual Machine.",
    "Error: A fatal exception has occurred.",
    "An error report file",
    "/",
    "at ",
    "... ",
    "{",
    "An error occurred while calling",
)
"""Lines that do not explain why a JVM ended or failed: its epilogue, stack frames, output of tasks, messages
of py4j."""
USAGE = "Usage: spark-submit"
NO_MAIN_CLASS = re.compile(r"Error: Could not find or load main class (?!org\.apache\.spark\.)")
REFUSED_OPTIONS = re.compile(r" \(was .*\)")
OPTION_VALUE = re.compile(r"(-D[^\s=]+=)\S+")
_PYTHON_ERROR = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit): .*")
_TRACEBACK = "Traceback (most recent call last)"
_SPARK_ERROR = re.compile(r"\[[A-Z_.]+\] .*")
WORDS_LINES = 2
WORDS_MAX_LENGTH = 300
LAST_WORDS_SECONDS = 2.0

_OF_A_RECORD = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime"})
"""Names that logging gives itself; it raises an error for details that are called so."""

_SPARK = logging.getLogger("twinlog_source.spark")


class JvmOutput:
    """The output of one JVM and its tasks, line by line, from its start to its end."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._words: deque[str] = deque(maxlen=WORDS_LINES)
        # A daemon thread, because reading the stream blocks.
        self._thread = threading.Thread(target=self._follow, name="spark-log", daemon=True)
        self._thread.start()

    def last_words(self) -> str:
        """Return why the JVM ended, in its own words; empty when it printed nothing. Blocks until its output
        ends, 2 s at most."""
        self._thread.join(LAST_WORDS_SECONDS)
        return _in_one_line(tuple(self._words))

    def _follow(self) -> None:
        with self._stream:
            for line in _told(self._stream):
                _pass_on(line)
                self._words.extend(_reasons(line))


def words_of(trace: str) -> str:
    """Return why Java failed, from the text of its exception: the last two lines that give a reason. Values
    of options are left out."""
    lines = _told(line.encode() for line in trace.splitlines())
    return _in_one_line(deque((words for line in lines for words in _reasons(line)), WORDS_LINES))


def words_of_failure(text: str) -> str:
    """What a failed job says: Spark's error, or the last line of Python's traceback.

    >>> words_of_failure("Stage failed\\norg.x.SparkException: [CAST_INVALID_INPUT] The value 'x' ...")
    "[CAST_INVALID_INPUT] The value 'x' ..."
    >>> words_of_failure("An error occurred while calling z\\n: org.x.SparkException: ExecutorLostFailure")
    'org.x.SparkException: ExecutorLostFailure'
    """
    lines = [line.strip() for line in text.splitlines()]
    if _TRACEBACK in text:
        return next((line for line in reversed(lines) if _PYTHON_ERROR.match(line)), _TRACEBACK)
    found = _SPARK_ERROR.search(text)
    told = (words for line in lines for words in _reasons(line))
    return found[0] if found is not None else next(told, "Spark gave no reason")


def _reasons(line: str) -> Iterator[str]:
    """The line without its prefix, if it gives a reason."""
    words = line.strip("#: \t")
    if words and not words.startswith(NO_REASON):
        yield words


def _in_one_line(lines: Iterable[str]) -> str:
    words = "; ".join(lines)
    return words if len(words) <= WORDS_MAX_LENGTH else f"{words[: WORDS_MAX_LENGTH - 1]}…"


def silence_py4j() -> None:
    """Keep py4j's tracebacks out of the log: Twinlog reports a lost JVM itself, once. py4j uses loggers of
    its own, and sometimes the root logger."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_from_py4j)


def _is_not_from_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def _told(stream: Iterable[bytes]) -> Iterator[str]:
    """The lines that may be shown: options may contain passwords, and after Spark's usage text nothing useful
    follows."""
    for raw in stream:
        line = raw.decode(errors="replace").rstrip()
        if line.startswith("{"):
            yield line
        elif NO_MAIN_CLASS.match(line):
            # The "class" may be half a password.
            yield "an option of the JVM holds a space: what follows it was taken for the class to start"
            break
        elif line.startswith(USAGE):
            break
        else:
            yield OPTION_VALUE.sub(r"\1…", REFUSED_OPTIONS.sub("", line))
    # The writer must not be delayed.
    for _ in stream:
        pass


def _pass_on(line: str) -> None:
    """Log the lines: lines of tasks keep their event and keys; the JVM's are warnings, its greetings are
    dropped."""
    if line.startswith("{"):
        try:
            entry = strange_json.loads(line)
            level = logging.getLevelNamesMapping()[str(entry.pop("level", "info")).upper()]
        except (ValueError, KeyError, AttributeError):
            _SPARK.warning(line)
            return
        for ours in ("time", "version", "service"):
            entry.pop(ours, None)
        event, name = str(entry.pop("event", "")), str(entry.pop("logger", "twinlog_source.task"))
        details = {key if key not in _OF_A_RECORD else f"task_{key}": value for key, value in entry.items()}
        logging.getLogger(name).log(level, event, extra=details)
    elif line and not line.startswith(NOISE):
        _SPARK.warning(line)

"""What every unit test has: time that jumps, logging that is put back, and hypothesis profiles.

HYPOTHESIS_PROFILE chooses: `ci` gives every run the same examples, `exhaustive` looks for new ones.
"""

import asyncio
import gc
import io
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import settings

from twinlog.testing.virtual_time import VirtualTimeLoop

Golden = Callable[[str], list[dict[str, Any]]]
_GOLDEN = Path(__file__).parents[1] / "golden"

settings.register_profile("ci", derandomize=True, deadline=None, database=None, max_examples=25)
settings.register_profile("exhaustive", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """No unit test waits for real time: a wait ends as soon as nothing else is left to do."""
    return {"virtual-time": VirtualTimeLoop}


def pytest_collection_finish() -> None:
    """What was imported and collected lives to the end: the garbage collector need not look at it again and
    again, which took a sixth of the time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(autouse=True)
def _nothing_given() -> None:
    """What a command noted of its options in one test is not seen by another."""
    noted = sys.modules.get("twinlog.cli.common.pasteable")
    if noted is not None:
        noted.GIVEN_FILE.set("")
        noted.GIVEN_ENDPOINTS.set(())


@pytest.fixture
def log_stream() -> Iterator[io.StringIO]:
    """For tests of `configure_logging`: where it may write. All that it changes is put back."""
    root = logging.getLogger()
    loggers = [root, *(each for each in root.manager.loggerDict.values() if isinstance(each, logging.Logger))]
    levels, handlers = {each: each.level for each in loggers}, list(root.handlers)
    raises = logging.raiseExceptions
    yield io.StringIO()
    root.handlers[:] = handlers
    for each in root.manager.loggerDict.values():
        if isinstance(each, logging.Logger):
            each.setLevel(levels.get(each, logging.NOTSET))
    root.setLevel(levels[root])
    logging.captureWarnings(capture=False)
    logging.raiseExceptions = raises
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def golden() -> Golden:
    """Read what the real MirrorMaker 2 answered (tests/golden) by the name of its file, without `.json`."""

    def read(name: str) -> list[dict[str, Any]]:
        vectors: list[dict[str, Any]] = json.loads((_GOLDEN / f"{name}.json").read_text())
        assert vectors, f"no golden vectors in {name}"
        return vectors

    return read

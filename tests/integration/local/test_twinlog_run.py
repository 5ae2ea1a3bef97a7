"""`TwinlogRun`: what it says when the services do not start."""

from pathlib import Path

import pytest

from twinlog.errors import StateError
from twinlog.local.twinlog_run import TwinlogRun


async def test_a_run_that_ends_as_it_starts_is_not_called_late(tmp_path: Path) -> None:
    run = TwinlogRun("clusters = A, B\n", tmp_path)
    with pytest.raises(StateError, match=r"(?s)twinlog run ended as it started:.*bootstrap"):
        await run.start()

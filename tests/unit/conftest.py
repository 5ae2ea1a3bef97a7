"""Time that jumps for every coroutine test, and hypothesis profiles: `ci` gives every run the same examples,
`exhaustive` looks for new ones.

Chosen by HYPOTHESIS_PROFILE.
"""

import asyncio
import os
from collections.abc import Callable, Mapping

from hypothesis import settings

from twinlog.testing.virtual_time import VirtualTimeLoop

settings.register_profile("ci", derandomize=True, deadline=None, database=None, max_examples=40)
settings.register_profile("exhaustive", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """No unit test waits for real time: a wait ends as soon as nothing else is left to do."""
    return {"virtual-time": VirtualTimeLoop}

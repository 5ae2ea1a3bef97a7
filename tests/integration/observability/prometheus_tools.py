"""Prometheus and promtool as the system has them. Where they are absent, tests that need them are skipped and
say how to install them; TWINLOG_REQUIRE_PROMETHEUS makes that a failure (`.ci/run` sets it)."""

import os
import shutil

import pytest

HOW = "not found: `apt-get install prometheus` brings Prometheus and promtool"
REQUIRED = "TWINLOG_REQUIRE_PROMETHEUS"


def tool(name: str) -> str:
    """The path of `prometheus` or `promtool`."""
    found = shutil.which(name)
    if found is not None:
        return found
    if os.environ.get(REQUIRED):
        pytest.fail(f"{name} {HOW}")
    pytest.skip(f"{name} {HOW}")

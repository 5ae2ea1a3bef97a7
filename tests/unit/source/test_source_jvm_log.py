"""What the JVM's bridge says in the service's log."""

import logging
from collections.abc import Iterator

import pytest

from twinlog_source.pipeline.jvm_log import silence_py4j


@pytest.fixture
def restored() -> Iterator[None]:
    root, bridge = logging.getLogger(), logging.getLogger("py4j")
    filters, level = list(root.filters), bridge.level
    yield
    root.filters[:] = filters
    bridge.setLevel(level)


@pytest.mark.usefixtures("restored")
def test_py4j_is_silent_and_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    silence_py4j()
    logging.getLogger("py4j.clientserver").error("lost")
    # As py4j does it: by the root logger itself.
    exec(compile("import logging\nlogging.info('lost')", "/site-packages/py4j/java_gateway.py", "exec"))
    logging.getLogger().info("kept")
    assert [record.message for record in caplog.records] == ["kept"]

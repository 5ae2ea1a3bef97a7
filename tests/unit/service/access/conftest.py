"""What the tests of the audit log share."""

import io
from pathlib import Path

import pytest

from twinlog.telemetry.logging import configure_logging
from unit.service.access.audit_rig import AuditRig


@pytest.fixture
def port(tmp_path: Path, log_stream: io.StringIO) -> AuditRig:
    configure_logging(service="s", version="1", format="json", level="error", stream=log_stream)
    return AuditRig(log=log_stream, directory=tmp_path)

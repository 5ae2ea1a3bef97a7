"""What a worker and a task know at their start."""

import sys
from dataclasses import dataclass

from twinlog import __version__
from twinlog.errors import TwinlogError
from twinlog.model import Flow
from twinlog.telemetry.logging import configure_logging
from twinlog_source.reasons import EndReason


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """What Spark carries to a worker: its driver's address, and the proof that the worker belongs to it. No
    secrets of Kafka."""

    number: int
    driver_endpoint: str
    """host:port of the driver's WorkerService."""
    driver_certificate: str
    """PEM: a peer with another certificate is not the driver."""
    token: str
    connect_timeout_seconds: float
    """A worker or a task whose driver does not answer for this long at the start ends."""
    log_level: str = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """What a task knows at its start."""

    flow: Flow
    epoch: int
    slot: int
    token: str
    """The proof that the task belongs to its driver, which is that of its worker."""
    worker: WorkerSpec


class TaskLostError(TwinlogError):
    """The worker lost its driver, which runs it again if it lives."""

    default_reason = EndReason.LEASE_LOST


def configure_task_logging(spec: WorkerSpec) -> None:
    configure_logging(
        service="source-task", version=__version__, format="json", level=spec.log_level, stream=sys.stderr
    )

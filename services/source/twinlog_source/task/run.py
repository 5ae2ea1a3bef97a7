"""The entry point of a task: a new event loop for one slot of one epoch, bounded by the driver's commands and
lease."""

import sys
from dataclasses import dataclass

import structlog
import uvloop

from twinlog import __version__
from twinlog.clock import Clock, SystemClock
from twinlog.errors import TwinlogError
from twinlog.model import Flow
from twinlog.service.rpc import GRPC, Rpc
from twinlog.telemetry.logging import configure_logging
from twinlog_source.reasons import EndReason
from twinlog_source.records.changing import MakePipe
from twinlog_source.records.pipe import record_pipe
from twinlog_source.task.settings import give_back_memory
from twinlog_source.task.stream.session import TaskConnection
from twinlog_source.task.writing.spans import export_spans

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """What Spark carries to a task: its driver's address, and the proof that the task belongs to it. No
    secrets of Kafka."""

    flow_name: str
    """`A->B`."""
    epoch: int
    slot: int
    driver_endpoint: str
    """host:port of the driver's WorkerService."""
    driver_certificate: str
    """PEM; the task recognises its driver by it."""
    token: str
    connect_timeout_seconds: float
    """A task whose driver does not answer for this long at the start ends."""
    log_level: str = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOutcome:
    slot: int
    reason: str
    """END_OF_EPOCH, EPOCH_OVER, REFUSED, or the reason of a failure that was reported to the driver."""
    message: str = ""


class TaskLostError(TwinlogError):
    """The task lost its driver while it copied: Spark runs it again, and it joins its slot again."""

    default_reason = EndReason.LEASE_LOST


def run_task(spec: TaskSpec) -> TaskOutcome:
    """Copy until the driver sends End. Blocks. Raises TaskLostError when the driver was lost; the next run
    shows whether it still lives."""
    configure_task_logging(spec)
    export_spans()
    session = connection(spec)
    try:
        reason, message = uvloop.run(session.run())
    except Exception:
        # Spark runs the task again; it writes the error only to its own log, which nobody reads.
        log.exception("task_crashed", flow=spec.flow_name, epoch=spec.epoch, slot=spec.slot)
        raise
    finally:
        give_back_memory()
    if reason == EndReason.LEASE_LOST:
        raise TaskLostError(message)
    return TaskOutcome(slot=spec.slot, reason=reason, message=message)


def configure_task_logging(spec: TaskSpec) -> None:
    configure_logging(
        service="source-task", version=__version__, format="json", level=spec.log_level, stream=sys.stderr
    )


def connection(
    spec: TaskSpec, *, rpc: Rpc = GRPC, clock: Clock | None = None, make_pipe: MakePipe = record_pipe
) -> TaskConnection:
    return TaskConnection(
        flow=Flow.parse(spec.flow_name),
        epoch=spec.epoch,
        slot=spec.slot,
        driver_endpoint=spec.driver_endpoint,
        driver_certificate=spec.driver_certificate,
        token=spec.token,
        connect_timeout_seconds=spec.connect_timeout_seconds,
        rpc=rpc,
        make_pipe=make_pipe,
        clock=clock or SystemClock(),
    )

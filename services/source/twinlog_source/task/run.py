"""What a worker and a task know at their start."""

import sys
from dataclasses import dataclass

from twinlog import __version__
from twinlog.clock import Clock, SystemClock
from twinlog.errors import TwinlogError
from twinlog.model import Flow
from twinlog.service.rpc import GRPC, Rpc
from twinlog.telemetry.logging import configure_logging
from twinlog_source.reasons import EndReason
from twinlog_source.records.changing import ChangingOf
from twinlog_source.task.stream.session import TaskConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """What a task knows at its start: its driver's address, and the proof that the task belongs to it."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """What Spark carries to a worker: its driver's address, and the proof that the worker belongs to it. No
    secrets of Kafka."""

    number: int
    driver_endpoint: str
    driver_certificate: str
    token: str
    connect_timeout_seconds: float
    log_level: str = "info"


class TaskLostError(TwinlogError):
    """The worker lost its driver, which runs it again if it lives."""

    default_reason = EndReason.LEASE_LOST


def configure_task_logging(spec: WorkerSpec) -> None:
    configure_logging(
        service="source-task", version=__version__, format="json", level=spec.log_level, stream=sys.stderr
    )


def connection(
    spec: TaskSpec, changing: ChangingOf, *, rpc: Rpc = GRPC, clock: Clock | None = None
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
        changing=changing,
        clock=clock or SystemClock(),
    )

"""What a task knows at its start, and the settings of its copy, from what its driver sends.

Tunes glibc for the memory of tasks: keep freed blocks while copying, return them to the system at rest.
"""

import ctypes
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace

from twinlog import __version__
from twinlog.batches import Codec, CopyPolicy, TargetTopicLimits
from twinlog.config.flow.source_settings import parse_until
from twinlog.errors import TwinlogError
from twinlog.model import ClusterAlias, Flow
from twinlog.policy.transformed import TopicTransforms, changes_records
from twinlog.telemetry.logging import configure_logging
from twinlog_source.partitions.orders import TaskAssignment, TaskSetup
from twinlog_source.reasons import EndReason
from twinlog_source.task.reading.bounds import Horizon

M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
LARGEST_REUSED_BLOCK_BYTES = 32 << 20
KEPT_FREE_BYTES = 1 << 30


def keep_freed_memory() -> None:
    """Make glibc reuse freed blocks of megabytes: returning them costs 17 times as much as the copy
    itself."""
    libc = _glibc()
    if libc is not None:
        libc.mallopt(M_MMAP_THRESHOLD, LARGEST_REUSED_BLOCK_BYTES)
        libc.mallopt(M_TRIM_THRESHOLD, KEPT_FREE_BYTES)


def give_back_memory() -> None:
    """Call it at the end of a task: its worker is idle for a whole epoch, while another one copies."""
    libc = _glibc()
    if libc is not None:
        libc.malloc_trim(0)


def _glibc() -> "ctypes.CDLL | None":
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim") else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CopySettings:
    """How records are copied; the same for all partitions of a task."""

    batches: CopyPolicy
    """The codec is the producer's `compression.type` if it is configured; None = records keep theirs."""
    fail_on_data_loss: bool
    exactly_once: bool
    """Rounds are transactions."""
    transforms: TopicTransforms | None = None
    """None = records are copied unchanged."""

    def policy(self, assignment: TaskAssignment) -> CopyPolicy:
        """How batches of one partition are copied to its target topic."""
        limits, named = self.batches.target, assignment.compression_type
        if named not in ("", "producer"):
            codec = Codec.NONE if named == "uncompressed" else Codec[named.upper()]
            limits = replace(limits, codec=codec)
        transforms, topic = self.transforms, assignment.partition.topic
        return replace(
            self.batches,
            target=replace(limits, max_message_bytes=assignment.max_message_bytes),
            keeps_offsets=assignment.preserved is not None,
            transform=None if transforms is None else transforms.changes(topic),
            routes=None if transforms is None else transforms.routes(topic),
        )


def horizon_of(settings: Mapping[str, str]) -> Horizon:
    """How far may be copied. A driver of an earlier version sets no limit."""
    return Horizon(
        delay_seconds=float(settings.get("twinlog.delay.seconds", "0")),
        until=parse_until(settings.get("twinlog.copy.until", "")),
        max_open_bytes=int(settings["twinlog.batch.max.uncompressed.bytes"]),
    )


def copy_settings(setup: TaskSetup, source: ClusterAlias, *, check_crcs: bool) -> CopySettings:
    """How records are copied, from Twinlog's settings and the producer's `compression.type`."""
    settings = setup.settings
    level = settings["twinlog.recode.compression.level"]
    codec = setup.clients["data_producer"].get("compression.type", "").strip().lower()
    return CopySettings(
        batches=CopyPolicy(
            target=TargetTopicLimits(
                codec=Codec[codec.upper()] if codec else None, level=int(level) if level else None
            ),
            read_committed=setup.read_committed,
            check_crc=check_crcs,
            coalesce_below_bytes=int(settings["twinlog.coalesce.below.bytes"]),
            max_open_bytes=int(settings["twinlog.batch.max.uncompressed.bytes"]),
        ),
        fail_on_data_loss=settings["twinlog.on.data.loss"] == "fail",
        exactly_once=bool(setup.transactional_ids),
        transforms=TopicTransforms(settings, source) if changes_records(settings) else None,
    )


# What a worker and a task know at their start.


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
    is_on_cluster: bool = False
    """Jobs that it asks for may run on other machines."""


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

"""The record of moves on the target: `mm2-failover.<A>.internal`, one compacted record for each flow.

A run writes it after every step, so one that was cut continues and a finished one is not done again. The
topic's name is one of MM2's internal ones, so nobody replicates it.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum

from twinlog.errors import WireFormatError
from twinlog.kafka.compacted_topic import ensure_compacted_topic
from twinlog.kafka.ports import AclBinding, KafkaCluster, OffsetSpec
from twinlog.model import Flow, TopicPartition
from twinlog_checkpoint.log_scan import INTERNAL_PARTITION, LogScan
from twinlog_checkpoint.moves import MoveKind

_FORMAT = 1
_FETCH_WAIT_SECONDS = 0.5


class MoveState(StrEnum):
    RUNNING = "RUNNING"
    DONE = "DONE"


class Step(StrEnum):
    """The steps in their order."""

    CHECK = "CHECK"
    FENCE = "FENCE"
    FINAL_OFFSETS = "FINAL_OFFSETS"
    DRAIN = "DRAIN"
    TRANSLATE = "TRANSLATE"
    COMMIT = "COMMIT"
    VERIFY = "VERIFY"
    UNFENCE = "UNFENCE"
    DONE = "DONE"


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRecord:
    """The last move of a flow."""

    run_id: str
    kind: MoveKind
    state: MoveState
    groups: tuple[str, ...]
    """Asked for; empty = all."""
    by: str
    started_ms: int
    finished_ms: int | None = None
    done: tuple[Step, ...] = ()
    fences: tuple[AclBinding, ...] = ()
    """ACLs that keep writers out where the groups came from; they stay until the move back."""
    former_fences: tuple[AclBinding, ...] = ()
    """Those of the move before, where the groups move to: taken away at the end of this one."""
    moved: tuple[str, ...] = ()
    """Groups that this move has finished with."""
    stood_at: Mapping[str, int] = field(default_factory=dict)
    """Where they stood on the cluster that was left: the sum of each group's offsets. One that went on there
    since is not finished with."""
    final_offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Ends of the logs that were left: what is before them has to be copied."""

    def after(self, step: Step) -> "MoveRecord":
        return self if step in self.done else replace(self, done=(*self.done, step))


def failover_topic(flow: Flow) -> str:
    """Name of the topic on the flow's target."""
    return f"mm2-failover.{flow.source}.internal"


def encode_record(flow: Flow, record: MoveRecord) -> tuple[bytes, bytes]:
    value = {
        "format": _FORMAT,
        "run_id": record.run_id,
        "kind": record.kind,
        "state": record.state,
        "groups": record.groups,
        "by": record.by,
        "started_ms": record.started_ms,
        "finished_ms": record.finished_ms,
        "done": record.done,
        "fences": [asdict(fence) for fence in record.fences],
        "former_fences": [asdict(fence) for fence in record.former_fences],
        "moved": record.moved,
        "stood_at": dict(record.stood_at),
        "final_offsets": [
            [partition.topic, partition.partition, offset]
            for partition, offset in sorted(record.final_offsets.items())
        ],
    }
    return _key(flow), json.dumps(value, separators=(",", ":")).encode()


def decode_record(value: bytes) -> MoveRecord:
    """Raises WireFormatError for anything else, a newer format included."""
    try:
        fields = json.loads(value)
        if fields["format"] != _FORMAT:
            raise WireFormatError(
                f"the record of the last move has format {fields['format']}, this release reads {_FORMAT}",
                reason="WIRE_VERSION",
            )
        return MoveRecord(
            run_id=fields["run_id"],
            kind=MoveKind(fields["kind"]),
            state=MoveState(fields["state"]),
            groups=tuple(fields["groups"]),
            by=fields["by"],
            started_ms=fields["started_ms"],
            finished_ms=fields["finished_ms"],
            done=tuple(Step(step) for step in fields["done"]),
            fences=tuple(AclBinding(**fence) for fence in fields["fences"]),
            former_fences=tuple(AclBinding(**fence) for fence in fields["former_fences"]),
            moved=tuple(fields["moved"]),
            stood_at=fields.get("stood_at", {}),
            final_offsets={
                TopicPartition(topic, number): offset for topic, number, offset in fields["final_offsets"]
            },
        )
    except (ValueError, KeyError, TypeError) as error:
        raise WireFormatError(f"the record of the last move is damaged: {error!r}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveJournal:
    """Reads and writes the record of one flow. Each call opens what it needs and closes it."""

    flow: Flow
    cluster: KafkaCluster
    replication_factor: int

    @property
    def topic(self) -> str:
        return failover_topic(self.flow)

    async def load(self) -> MoveRecord | None:
        """The last move; None when there was none. Raises KafkaError, WireFormatError."""
        if self.topic not in await self.cluster.list_topics():
            return None
        found: MoveRecord | None = None
        async with self.cluster.reader() as reader:
            scan = LogScan(admin=self.cluster, reader=reader, topic=self.topic, end=OffsetSpec.LAST_STABLE)
            await scan.begin()
            while not scan.first_pass_done:
                for record in await scan.more(max_wait_seconds=_FETCH_WAIT_SECONDS):
                    if record.key == _key(self.flow) and record.value is not None:
                        found = decode_record(record.value)
        return found

    async def store(self, record: MoveRecord) -> None:
        """Returns when the target has it. Raises KafkaError."""
        await ensure_compacted_topic(self.cluster, self.topic, replication_factor=self.replication_factor)
        key, value = encode_record(self.flow, record)
        async with self.cluster.writer() as writer:
            await writer.append(TopicPartition(self.topic, INTERNAL_PARTITION), key=key, value=value)


def _key(flow: Flow) -> bytes:
    return json.dumps(["TwinlogMove", {"flow": str(flow)}], separators=(",", ":")).encode()

"""Reads and writes the record of a flow's moves on its target, `mm2-failover.<A>.internal`.

A run writes it after every step that changes something, so an interrupted run can continue. The name of the
topic has the form of MM2's internal topics, so no replicator copies it.

The topics that a flow's moves keep fenced, and those that others keep fenced.

The record of a flow's source: which cluster it is, whether it lost its groups, and which groups are gone.
It survives restarts, as one record in the journal's topic (`mm2-failover.<A>.internal`).
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import random

import structlog

from twinlog.clock import Clock
from twinlog.errors import WireFormatError
from twinlog.kafka.ports import KafkaCluster
from twinlog.kafka.table import Table
from twinlog.model import Flow
from twinlog.moves.record import Moves
from twinlog.moves.stored import RUN, Key, MovesCodec, Row, moves_of, rows_of
from twinlog.policy.internal_topics import failover_topic
from twinlog.service.runtime import Backoff, retrying_loop
from twinlog.wire.connect_json import loads
from twinlog.write_blocks import OtherFence

MovesTable = Table[Key, Row]

_log = structlog.stdlib.get_logger(__name__)


def moves_table(flow: Flow, cluster: KafkaCluster, *, replication_factor: int) -> MovesTable:
    """The table on the flow's target."""
    return Table(
        cluster=cluster,
        topic=failover_topic(flow.source),
        codec=MovesCodec(flow),
        replication_factor=replication_factor,
        keeps=True,
    )


@dataclass(slots=True, kw_only=True)
class MoveJournal:
    """The record of one flow. Only the flow's owner writes it: `load`, then `store`."""

    flow: Flow
    table: MovesTable
    """The process has one for the flow: what it knows is written again if the topic has lost it."""
    is_owner: Callable[[], bool] = lambda: True
    on_moves: Callable[[Moves], None] = lambda _: None
    """Called with the record that was read or written."""

    @property
    def topic(self) -> str:
        return self.table.topic

    @property
    def known(self) -> Moves:
        """What was read or written last."""
        return moves_of(self.flow, self.table.rows)

    async def load(self) -> Moves:
        """Raises KafkaError, WireFormatError."""
        await self.table.load()
        if self.is_owner() and await self.table.write_again():
            _log.warning("moves_written_again", flow=str(self.flow), topic=self.topic)
        moves = self.known
        self.on_moves(moves)
        return moves

    async def store(self, moves: Moves) -> None:
        """Return when the target has all of it. Raises KafkaError.

        The run is stored after what it did, and what it removed after the run: a record of an earlier release
        is whole until it is replaced."""
        rows = rows_of(moves)
        run: dict[Key, Row | None] = {key: row for key, row in rows.items() if key == (RUN,)}
        gone: dict[Key, Row | None] = dict.fromkeys(self.table.rows.keys() - rows.keys())
        await self.table.put({key: row for key, row in rows.items() if key not in run}, run, gone)
        self.on_moves(moves)


_LOOK_SECONDS = 600.0
"""How often the owner of the flow reads the journal again. The previous owner may have written to it just
before it stopped."""


@dataclass(slots=True)
class KnownFences:
    """The last known fences of the journal. `run` is a loop; `topics` may be called from any thread."""

    topics: Mapping[str, int] = field(default_factory=dict)
    """Return the fenced topics by cluster: `source` or `target`. Empty while unknown."""
    others: Sequence[OtherFence] = ()
    """On topics of the flow, on its source."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def on_moves(self, moves: Moves) -> None:
        """The record of moves was read or written."""
        flow = moves.flow
        topics = {
            side: len(moves.fences.get(cluster, ()))
            for side, cluster in (("source", flow.source), ("target", flow.target))
        }
        if topics != self.topics:
            self._changed.set()
        self.topics = topics

    async def run(
        self,
        stop: asyncio.Event,
        *,
        load: Callable[[], Awaitable[Moves]],
        tend: Callable[[Moves], Awaitable[Sequence[OtherFence]]],
        clock: Clock,
    ) -> None:
        """Loop: read the journal at an interval while this process owns the flow, and `tend` the fences on
        the clusters, which returns the `others`. Afterwards the fences are unknown."""

        async def look() -> None:
            moves = await load()
            self.on_moves(moves)
            self.others = await tend(moves)

        try:
            await retrying_loop(
                "known fences",
                look,
                stop=stop,
                interval_seconds=_LOOK_SECONDS,
                backoff=Backoff(initial_seconds=1.0, max_seconds=60.0, random=random),
                clock=clock,
                woken=self._changed,
            )
        finally:
            self.topics, self.others = {}, ()


MOST_GONE = 2_000
"""Most groups in the record, which has to fit into one message. For other groups a new process starts the
grace period again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord:
    cluster_id: str
    """The id of the cluster from which the groups were read; "" if it has none."""
    held: str = ""
    """Why no group may be deleted (SOURCE_LOST, SOURCE_REPLACED); "" when nothing forbids it."""
    gone_ms: Mapping[str, int] = field(default_factory=dict)
    """When each group was first seen to be gone from the source; at most `MOST_GONE` groups."""


SourceTable = Table[Flow, SourceRecord]


def source_table(flow: Flow, cluster: KafkaCluster, *, replication_factor: int) -> SourceTable:
    """The table on the flow's target: one row, the flow's."""
    return Table(
        cluster=cluster,
        topic=failover_topic(flow.source),
        codec=_Codec(flow),
        replication_factor=replication_factor,
        keeps=True,
    )


@dataclass(frozen=True, slots=True)
class _Codec:
    flow: Flow

    def decode_key(self, key: bytes) -> Flow | None:
        return self.flow if key == _key(self.flow) else None

    def decode_value(self, key: Flow, value: bytes) -> SourceRecord:
        return decode(value)

    def encode(self, key: Flow, value: SourceRecord | None) -> tuple[bytes, bytes | None]:
        return _key(key), None if value is None else encode(value)


def encode(record: SourceRecord) -> bytes:
    fields = {"format": 1, "cluster_id": record.cluster_id, "held": record.held}
    return json.dumps({**fields, "gone_ms": dict(record.gone_ms)}).encode()


def decode(value: bytes) -> SourceRecord:
    """Raises WireFormatError."""
    match fields := loads(value, "the record of the source"):
        case {"format": 1, "cluster_id": str(cluster_id), "held": str(held)}:
            return SourceRecord(cluster_id=cluster_id, held=held, gone_ms=_times(fields.get("gone_ms", {})))
        case {"format": int(written_as)} if written_as != 1:
            raise WireFormatError(
                f"the record of the source has format {written_as}, this release reads 1",
                reason="WIRE_VERSION",
            )
        case _:
            raise WireFormatError("the record of the source is damaged")


def _times(value: object) -> dict[str, int]:
    """Raises WireFormatError."""
    if not isinstance(value, dict) or not all(type(at) is int for at in value.values()):
        raise WireFormatError("the record of the source is damaged: gone_ms is not a table of times")
    return value


def _key(flow: Flow) -> bytes:
    return json.dumps(["TwinlogSource", {"flow": str(flow)}], separators=(",", ":")).encode()

"""Reads and writes the record of a flow's moves on its target, `mm2-failover.<A>.internal`.

A run writes it after every step that changes something, so an interrupted run can continue. The name of the
topic has the form of MM2's internal topics, so no replicator copies it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from twinlog.kafka.ports import KafkaCluster
from twinlog.kafka.table import Table
from twinlog.model import Flow
from twinlog.moves.record import Moves
from twinlog.moves.stored import RUN, Key, MovesCodec, Row, moves_of, rows_of
from twinlog.policy.internal_topics import failover_topic


@dataclass(slots=True, kw_only=True)
class MoveJournal:
    """The record of one flow. Only the flow's owner writes it: `load`, then `store`."""

    flow: Flow
    cluster: KafkaCluster
    replication_factor: int
    on_moves: Callable[[Moves], None] = lambda _: None
    """Called with the record that was read or written."""
    _table: Table[Key, Row] = field(init=False)

    def __post_init__(self) -> None:
        self._table = Table(
            cluster=self.cluster,
            topic=self.topic,
            codec=MovesCodec(self.flow),
            replication_factor=self.replication_factor,
        )

    @property
    def topic(self) -> str:
        return failover_topic(self.flow.source)

    async def load(self) -> Moves:
        """Raises KafkaError, WireFormatError."""
        moves = moves_of(self.flow, await self._table.load())
        self.on_moves(moves)
        return moves

    async def store(self, moves: Moves) -> None:
        """Return when the target has all of it. Raises KafkaError.

        The run is stored after what it did, and what it removed after the run: a record of an earlier release
        is whole until it is replaced."""
        rows = rows_of(moves)
        run: dict[Key, Row | None] = {key: row for key, row in rows.items() if key == (RUN,)}
        gone: dict[Key, Row | None] = dict.fromkeys(self._table.rows.keys() - rows.keys())
        await self._table.put({key: row for key, row in rows.items() if key not in run}, run, gone)
        self.on_moves(moves)

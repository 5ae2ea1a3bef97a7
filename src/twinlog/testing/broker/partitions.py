"""Brokers, topics, partitions: plain state."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from uuid import UUID

from twinlog.testing.broker.log import PartitionLog

GROUP_COORDINATORS = "__consumer_offsets"
TRANSACTION_COORDINATORS = "__transaction_state"


@dataclass(slots=True, eq=False)
class Node:
    """One broker."""

    node_id: int
    host: str = ""
    port: int = 0
    rack: str | None = None
    is_up: bool = True


@dataclass(slots=True, eq=False)
class Partition:
    """A partition with a log on each of its replicas."""

    topic: str
    index: int
    replicas: list[int]
    logs: dict[int, PartitionLog]
    leader: int
    leader_epoch: int = 0
    isr: list[int] = field(default_factory=list)
    lagging: set[int] = field(default_factory=set)
    """Replicas that copy nothing, by fault."""
    waiting: dict[asyncio.Future[None], None] = field(default_factory=dict)
    """Who waits until something becomes readable; in order."""

    @property
    def log(self) -> PartitionLog:
        """The leader's log; without a leader that of the replica that led last."""
        return self.logs[self.leader if self.leader >= 0 else self.isr[0]]

    @property
    def high_watermark(self) -> int:
        """What each in-sync replica has."""
        return self.log.high_watermark

    def replicate(self) -> None:
        """Let the followers copy what they lack, then move the high watermark."""
        log = self.log
        for node_id in self.replicas:
            if node_id != self.leader and node_id in self.isr and node_id not in self.lagging:
                self.logs[node_id].follow(log)
        log.advance_high_watermark(min(self.logs[node_id].end_offset for node_id in self.isr))
        for node_id in self.isr:
            if node_id != self.leader:
                self.logs[node_id].advance_high_watermark(log.high_watermark)
        self.wake()

    def retain(self, now_ms: int) -> None:
        """Let the leader remove what is too old; the followers remove it with their next copy."""
        start = self.log.start_offset
        self.log.retain(now_ms)
        if self.log.start_offset > start:
            self.replicate()

    def synchronize(self, live: Collection[int]) -> None:
        """Let every live replica catch up with the leader and be in sync, but for those that copy nothing."""
        for node_id in self.replicas:
            if node_id != self.leader and node_id in live and node_id not in self.lagging:
                self.logs[node_id].follow(self.log)
                if node_id not in self.isr:
                    self.isr.append(node_id)
        self.replicate()

    def wake(self) -> None:
        """Let everyone who waits look again."""
        waiting, self.waiting = self.waiting, {}
        for each in waiting:
            if not each.done():
                each.set_result(None)


@dataclass(slots=True, eq=False)
class Topic:
    name: str
    topic_id: UUID
    partitions: list[Partition]
    configs: dict[str, str]
    """The topic's own configs."""

    @property
    def is_internal(self) -> bool:
        return self.name in (GROUP_COORDINATORS, TRANSACTION_COORDINATORS)

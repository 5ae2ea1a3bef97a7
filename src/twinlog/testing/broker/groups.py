"""The groups of a cluster and their committed offsets, whatever broker coordinates them: those of the classic
protocol, in which all Python clients are members."""

from collections.abc import Mapping
from random import Random
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from twinlog.testing.broker.classic_group import ClassicGroup
from twinlog.testing.broker.transactions import TopicIndex


class Committed(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str


class Groups:
    def __init__(self, random: Random, broker_configs: Mapping[str, str]) -> None:
        self._random = random
        self._broker_configs = broker_configs
        self.by_id: dict[str, ClassicGroup] = {}
        self.offsets: dict[str, dict[TopicIndex, Committed]] = {}

    def classic(self, group_id: str, *, create: bool) -> ClassicGroup | None:
        """None if there is no such group and none is created."""
        found = self.by_id.get(group_id)
        if found is not None or not create:
            return found
        delay_ms = int(self._broker_configs.get("group.initial.rebalance.delay.ms", "0"))
        made = self.by_id[group_id] = ClassicGroup(group_id, self._random, delay_ms / 1000)
        return made

    def commit_error(self, group_id: str, member_id: str, generation: int) -> ErrorCode:
        """Whether they may commit; an administrator has no generation. A group that does not exist is made
        by a commit outside any generation."""
        group = self.classic(group_id, create=generation < 0)
        if group is None:
            return ErrorCode.illegal_generation
        return group.commit_error(member_id, generation)

    def commit(self, group_id: str, offsets: Mapping[TopicIndex, Committed]) -> None:
        self.offsets.setdefault(group_id, {}).update(offsets)

    def delete(self, group_id: str) -> ErrorCode:
        group = self.by_id.get(group_id)
        if group is None:
            return ErrorCode.group_id_not_found
        if group.has_members:
            return ErrorCode.non_empty_group
        group.close()
        del self.by_id[group_id]
        self.offsets.pop(group_id, None)
        return ErrorCode.none

    def forget_topic(self, topic: str) -> None:
        """A deleted topic takes along what groups have committed for it."""
        for offsets in self.offsets.values():
            for partition in [each for each in offsets if each[0] == topic]:
                del offsets[partition]

    def close(self) -> None:
        """Stop all timers."""
        for group in self.by_id.values():
            group.close()

"""Groups of the later protocols, which coordinators assign: consumer (KIP-848), share (KIP-932), streams
(KIP-1071).

Consumer groups are reconciled member by member as ConsumerGroup.java does; a share group's members have all
partitions; streams groups are listed and described, and have no tasks.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kio.schema.errors import ErrorCode

TopicIndex = tuple[str, int]
_SESSION_SECONDS = 45.0
_JOINS = 0
LEAVES = -1
LEAVES_FOR_NOW = -2
"""A static member that will be back."""


class GroupBeat(NamedTuple):
    """What a member's heartbeat says; None for what has not changed."""

    member_id: str
    epoch: int
    client_id: str
    client_host: str
    instance_id: str | None
    rack_id: str | None
    rebalance_seconds: float
    topics: tuple[str, ...] | None
    owned: frozenset[TopicIndex] | None


@dataclass(slots=True, eq=False)
class ModernMember:
    member_id: str
    client_id: str
    client_host: str
    instance_id: str | None
    rack_id: str | None
    rebalance_seconds: float = 45.0
    topics: tuple[str, ...] = ()
    epoch: int = 0
    previous_epoch: int = 0
    assigned: frozenset[TopicIndex] = frozenset()
    revoking: frozenset[TopicIndex] = frozenset()
    """What the member still has and was told to give up."""
    target: frozenset[TopicIndex] = frozenset()
    is_away: bool = False
    told: frozenset[TopicIndex] | None = None
    """The assignment of the last answer."""
    session: asyncio.TimerHandle | None = None
    revocation: asyncio.TimerHandle | None = None


@dataclass(slots=True, eq=False)
class ModernGroup:
    group_id: str
    kind: str
    """`consumer`, `share` or `streams`."""
    partition_counts: Callable[[], Mapping[str, int]]
    """The topics of the cluster."""
    epoch: int = 0
    members: dict[str, ModernMember] = field(default_factory=dict)
    _known: dict[str, int] = field(default_factory=dict)
    _is_changed: bool = False
    """Whether the next assignment has an epoch of its own."""

    @property
    def listed_protocol(self) -> str:
        return self.kind

    @property
    def has_members(self) -> bool:
        return bool(self.members)

    @property
    def subscribed_topics(self) -> set[str]:
        return {topic for member in self.members.values() for topic in member.topics}

    @property
    def state(self) -> str:
        if not self.members:
            return "Empty"
        if self.kind == "streams":
            return "NotReady"
        settled = all(
            each.epoch == self.epoch and each.assigned == each.target and not each.revoking
            for each in self.members.values()
        )
        return "Stable" if settled or self.kind == "share" else "Reconciling"

    def heartbeat(self, beat: GroupBeat) -> tuple[ModernMember | None, ErrorCode]:
        """Join, stay or leave."""
        member = self.members.get(beat.member_id)
        if beat.epoch in (LEAVES, LEAVES_FOR_NOW):
            return self._leave(member, beat)
        if beat.epoch == _JOINS:
            member = self._join(member, beat)
            if member is None:
                return None, ErrorCode.unreleased_instance_id
        elif member is None:
            return None, ErrorCode.unknown_member_id
        elif beat.epoch != member.epoch and not self._lost_an_answer(member, beat):
            return None, ErrorCode.fenced_member_epoch
        assert member is not None
        if beat.topics is not None and beat.topics != member.topics:
            member.topics = beat.topics
            self._is_changed = True
        self._touch(member)
        self._assign()
        self._reconcile(member, beat.owned)
        return member, ErrorCode.none

    def commit_error(
        self, member_id: str, instance_id: str | None, epoch: int, *, in_transaction: bool
    ) -> ErrorCode:
        """Members with their epoch, and administrators while there are none."""
        if self.kind == "share":
            return ErrorCode.group_id_not_found
        if epoch < 0 and (in_transaction or not self.members):
            return ErrorCode.none
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.unknown_member_id
        return ErrorCode.none if epoch == member.epoch else ErrorCode.stale_member_epoch

    def close(self) -> None:
        """Stop all timers."""
        for member in self.members.values():
            _stop(member.session, member.revocation)

    def _join(self, member: ModernMember | None, beat: GroupBeat) -> ModernMember | None:
        static = next(
            (
                each
                for each in self.members.values()
                if beat.instance_id and each.instance_id == beat.instance_id
            ),
            None,
        )
        if member is None and static is not None:
            if not static.is_away:
                return None
            del self.members[static.member_id]
            static.member_id, static.is_away = beat.member_id, False
            static.told = None
            self.members[beat.member_id] = static
            return static
        if member is None:
            member = self.members[beat.member_id] = ModernMember(
                beat.member_id, beat.client_id, beat.client_host, beat.instance_id, beat.rack_id
            )
            self._is_changed = True
        if beat.rebalance_seconds > 0:
            member.rebalance_seconds = beat.rebalance_seconds
        member.told = None
        return member

    def _leave(self, member: ModernMember | None, beat: GroupBeat) -> tuple[ModernMember | None, ErrorCode]:
        if member is None:
            return None, ErrorCode.unknown_member_id
        if beat.epoch == LEAVES_FOR_NOW and member.instance_id is not None:
            member.is_away = True
        else:
            self._remove(member)
        return None, ErrorCode.none

    def _lost_an_answer(self, member: ModernMember, beat: GroupBeat) -> bool:
        return (
            beat.epoch == member.previous_epoch and beat.owned is not None and beat.owned <= member.assigned
        )

    def _remove(self, member: ModernMember) -> None:
        if self.members.pop(member.member_id, None) is not None:
            _stop(member.session, member.revocation)
            self._is_changed = True
            self._assign()

    def _touch(self, member: ModernMember) -> None:
        _stop(member.session)
        member.session = asyncio.get_running_loop().call_later(_SESSION_SECONDS, self._remove, member)

    def _assign(self) -> None:
        """Each member's target: partition by partition to the next of those that want the topic."""
        counts = dict(self.partition_counts())
        wanted = {topic for member in self.members.values() for topic in member.topics}
        known = {topic: counts[topic] for topic in wanted if topic in counts}
        if known != self._known or self._is_changed:
            self._known = known
            self._is_changed = False
            self.epoch += 1
        targets: dict[str, set[TopicIndex]] = {member_id: set() for member_id in self.members}
        for topic in sorted(known):
            takers = sorted(key for key, each in self.members.items() if topic in each.topics)
            for index in range(known[topic]):
                chosen: Iterable[str] = takers if self.kind == "share" else [takers[index % len(takers)]]
                for member_id in chosen:
                    targets[member_id].add((topic, index))
        for member_id, target in targets.items():
            self.members[member_id].target = frozenset(target if self.kind != "streams" else ())

    def _reconcile(self, member: ModernMember, owned: frozenset[TopicIndex] | None) -> None:
        """One step: give up first, then advance to the group's epoch, then take what others have given up."""
        if member.revoking:
            if owned is None or owned & member.revoking:
                return
            member.revoking = frozenset()
            _stop(member.revocation)
        surplus = member.assigned - member.target
        if surplus and member.epoch > 0 and self.kind == "consumer":
            member.assigned -= surplus
            member.revoking = surplus
            member.revocation = asyncio.get_running_loop().call_later(
                member.rebalance_seconds, self._remove, member
            )
            return
        taken: frozenset[TopicIndex] = frozenset()
        if self.kind == "consumer":
            taken = taken.union(
                *(each.assigned | each.revoking for each in self.members.values() if each is not member)
            )
        member.assigned = member.target - taken
        if member.epoch != self.epoch:
            member.previous_epoch, member.epoch = member.epoch, self.epoch


def _stop(*timers: asyncio.TimerHandle | None) -> None:
    for timer in timers:
        if timer is not None:
            timer.cancel()

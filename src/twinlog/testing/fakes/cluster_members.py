"""Groups on a fake cluster whose leaders tell their members what to do: the first member leads until it
withdraws or is silenced by a test."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from twinlog.kafka.deadline import pause
from twinlog.kafka.ports import Assign, Member, Pulse, Seat, never_gone
from twinlog.testing.fakes.cluster_base import FakeClusterBase
from twinlog.testing.fakes.cluster_hooks import Hooks, operation


@dataclass(slots=True)
class FakeMemberGroup:
    members: list["FakeMember"] = field(default_factory=list)
    generation: int = 0
    waiting: dict["FakeMember", asyncio.Future[Seat]] = field(default_factory=dict)
    """Those that have joined the next generation."""
    is_complete: bool = True

    def change(self) -> None:
        """All have to join again, and the next generation begins when all have."""
        self.is_complete = False
        if not self.members or len(self.waiting) < len(self.members):
            return
        self.generation += 1
        self.is_complete = True
        told = self.members[0].assign({each.id: each.about for each in self.members}, self.generation)
        for member, seat in self.waiting.items():
            member.generation = self.generation
            if not seat.done():
                seat.set_result(
                    Seat(member=member.id, generation=self.generation, assignment=told[member.id])
                )
        self.waiting.clear()

    def remove(self, member: "FakeMember") -> None:
        if member in self.members:
            self.members.remove(member)
            self.waiting.pop(member, None)
            self.change()


class FakeMembers(FakeClusterBase):
    def member(
        self,
        group_id: str,
        *,
        assign: Assign,
        session_seconds: float,
        rebalance_seconds: float,
        mark: str = "",
        is_gone: Callable[[str], bool] = never_gone,
    ) -> Member:
        return FakeMember(self.hooks, self.member_groups, group_id, assign, mark=mark, is_gone=is_gone)

    def silence(self, group_id: str) -> None:
        """End the leader's session: it is no member any more, and comes back after the others went on."""
        group = self.member_groups[group_id]
        group.members[0].returns_after = group.generation
        group.remove(group.members[0])


class FakeMember:
    def __init__(
        self,
        hooks: Hooks,
        groups: dict[str, FakeMemberGroup],
        group_id: str,
        assign: Assign,
        *,
        mark: str,
        is_gone: Callable[[str], bool],
    ) -> None:
        self.hooks = hooks
        self.assign = assign
        self.mark = mark
        self.id = ""
        self.about = b""
        self.generation = -1
        self.returns_after = -1
        self._is_gone = is_gone
        self._groups = groups
        self._group = groups.setdefault(group_id, FakeMemberGroup())

    @operation
    async def join(self, about: Callable[[bool], bytes]) -> Seat:
        while self._group.generation == self.returns_after:
            await pause(0.001)
        is_known = self in self._group.members
        self._put_out_the_gone()
        if not is_known:
            self.id = f"member {id(self)}"
            self._group.members.append(self)
        self.about = about(is_known)
        seat: asyncio.Future[Seat] = asyncio.get_running_loop().create_future()
        self._group.waiting[self] = seat
        self._group.change()
        return await seat

    @operation
    async def beat(self) -> Pulse:
        if self not in self._group.members or self.generation < 0:
            return Pulse.JOINS
        if not self._group.is_complete:
            return Pulse.WAITED_FOR
        return Pulse.SEATED if self.generation == self._group.generation else Pulse.JOINS

    @operation
    async def others(self, group_ids: Collection[str]) -> Mapping[str, tuple[bytes, ...]]:
        self._put_out_the_gone()
        return {
            group_id: tuple(each.about for each in self._groups[group_id].members)
            for group_id in group_ids
            if group_id in self._groups
        }

    async def withdraw(self) -> None:
        self._group.remove(self)

    def _put_out_the_gone(self) -> None:
        for one in [each for each in self._group.members if each.mark and self._is_gone(each.mark)]:
            self._group.remove(one)

"""Elections on a fake cluster: the first candidate leads until it withdraws or is silenced by a test."""

from collections.abc import Callable

from twinlog.kafka.ports import Candidate, ElectionResult, never_gone
from twinlog.testing.fakes.cluster_base import FakeClusterBase
from twinlog.testing.fakes.cluster_hooks import Hooks, operation


class FakeElections(FakeClusterBase):
    def candidate(
        self,
        group_id: str,
        *,
        name: Callable[[], str],
        session_seconds: float,
        mark: str = "",
        is_gone: Callable[[str], bool] = never_gone,
    ) -> Candidate:
        members = self.elections.setdefault(group_id, [])
        return FakeCandidate(self.hooks, members, name, mark=mark, is_gone=is_gone)

    def silence(self, group_id: str) -> None:
        """End the leader's session: it lost the election, and does not know it until it stands again."""
        self.elections[group_id].pop(0)


class FakeCandidate:
    def __init__(
        self,
        hooks: Hooks,
        members: list["FakeCandidate"],
        name: Callable[[], str],
        *,
        mark: str,
        is_gone: Callable[[str], bool],
    ) -> None:
        self.hooks = hooks
        self.name = name
        self.mark = mark
        self._is_gone = is_gone
        self._members = members

    @operation
    async def stand(self) -> ElectionResult:
        if self not in self._members or self._members[0] is not self:
            self._members[:] = [one for one in self._members if not (one.mark and self._is_gone(one.mark))]
        if self not in self._members:
            self._members.append(self)
        leader = self._members[0]
        return ElectionResult(leads=leader is self, leader=leader.name())

    async def withdraw(self) -> None:
        if self in self._members:
            self._members.remove(self)

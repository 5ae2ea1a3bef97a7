"""One owner per flow: several processes of one service may serve a flow, one of them owns it.

They agree on it as members of a group on the flow's target (`membership`, docs/adr/0004). The others stand
by, and one takes over when the owner leaves, or after it was silent for a session. The owner itself stops
before another may begin: it trusts the coordinator's last answer for less than a session.
"""

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from typing import Any, Final, TypeVar

import structlog

from twinlog.clock import Clock
from twinlog.errors import KafkaError, StateError, TransientKafkaError, TwinlogError
from twinlog.model import Flow
from twinlog.service.owner.name import (
    OWNER_ADDRESS,
    OwnerName,
    OwnerReason,
    are_twins,
    twin_deployment,
)
from twinlog.service.runtime import Loop, LoopExited
from twinlog.service.waiting import STEP_GRACE_SECONDS, finish_or_cancel, wait_for_any

T = TypeVar("T")

_LEAST_VALID_SHARE: Final = 0.4
_REQUIRE_SECONDS: Final = 10.0
_SESSIONS_OF_SILENCE: Final = 3
"""Sessions without an answer after which a known owner may be gone."""
_LOADING: Final = "COORDINATOR_UNAVAILABLE"
_LOADING_SECONDS: Final = 60.0
"""A new cluster creates its groups' topic meanwhile, and a broker that was started reads its part of it. A
coordinator that takes longer is a problem."""
NO_ELECTION: Final = frozenset({"GROUP_UNAUTHORIZED", "UNSUPPORTED_VERSION"})
"""Nobody can be elected here: a process that knows no owner works as if it were the only one."""

_log = structlog.stdlib.get_logger(__name__)


class LeaseState(Enum):
    """The known state of a flow's owner."""

    UNKNOWN = "UNKNOWN"
    """Not asked yet, or no answer for too long."""
    OWNER = "OWNER"
    ELSEWHERE = "ELSEWHERE"


@dataclass(slots=True, eq=False, repr=False)
class FlowLease:
    """Whether this process owns a flow, for one service. All is for one event loop."""

    flow: Flow
    _: KW_ONLY
    group: str
    session_seconds: float
    clock: Clock
    rules: str = ""
    """A `selection_fingerprint`; "" is a value like others."""
    on_owner: Callable[[], None] = lambda: None
    """Called for every new owner."""
    _owner: str = ""
    problem: TwinlogError | None = None
    _valid_until: float = 0.0
    _heard_at: float = 0.0
    _loading_since: float | None = None
    works_alone: bool = False
    """Whether nobody can be asked who the owner is, and this process knows of none."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _at_work: int = 0
    on_idle: Callable[[], None] = lambda: None
    """Called when the last guarded work has ended."""
    _state: LeaseState = LeaseState.UNKNOWN

    @property
    def state(self) -> LeaseState:
        if self._state is LeaseState.OWNER and not self.works_alone and self._seconds_left() <= 0:
            return LeaseState.UNKNOWN
        if self._state is LeaseState.ELSEWHERE and self.problem is not None and self._is_hearsay():
            return LeaseState.UNKNOWN
        return self._state

    def is_owner(self) -> bool | None:
        """Whether this process owns the flow; None = not known."""
        state = self.state
        return None if state is LeaseState.UNKNOWN else state is LeaseState.OWNER

    @property
    def is_loading(self) -> bool:
        """Whether a coordinator has not been ready for no longer than a new cluster takes to make one."""
        since, problem = self._loading_since, self.problem
        if since is None or problem is None or problem.reason != _LOADING:
            return False
        return self.clock.monotonic() - since < _LOADING_SECONDS

    def _is_hearsay(self) -> bool:
        """Whether the last news of the owner is old. Neither taking its place nor reporting it as the owner
        would be right, because perhaps only the right to ask was lost."""
        return self.clock.monotonic() - self._heard_at > _SESSIONS_OF_SILENCE * self.session_seconds

    @property
    def is_elected(self) -> bool:
        """Whether the coordinator confirms this process as the owner now, so nobody else works."""
        return self.state is LeaseState.OWNER and not self.works_alone

    def refusal(self) -> TwinlogError | None:
        """Why this process must not work at the flow now; None for the owner."""
        match self.state:
            case LeaseState.OWNER:
                return None
            case LeaseState.ELSEWHERE if self._is_twin():
                return twin_deployment(self.flow, self._owner)
            case LeaseState.ELSEWHERE:
                return self._owned_elsewhere()
            case LeaseState.UNKNOWN:
                return self._unknown() if self.is_loading else self.problem or self._unknown()

    def _owned_elsewhere(self) -> StateError:
        address = OwnerName.parse(self._owner).address_from(socket.gethostname())
        called = {OWNER_ADDRESS: address} if address else {}
        problem = self.problem
        is_barred = problem is not None and problem.reason in NO_ELECTION
        takes_over = f"cannot take over ({problem})" if is_barred else "takes over when that one is gone"
        return StateError(
            f"{self.flow} is served by another process now ({self._owner}); this one stands by, and "
            f"{takes_over}. Ask it",
            reason=OwnerReason.OWNED_ELSEWHERE,
            metadata={"flow": str(self.flow), "owner": self._owner, **called},
        )

    def _is_twin(self) -> bool:
        return are_twins(self.rules, OwnerName.parse(self._owner).rules)

    def _unknown(self) -> TransientKafkaError:
        return TransientKafkaError(
            f"{self.flow}: it is being found out whether another process serves it (group "
            f"{self.group} on {self.flow.target})",
            reason="STARTING",
            metadata={"flow": str(self.flow)},
        )

    async def require(self) -> None:
        """Return once this process owns the flow; waits up to 10 s while the owner is not known.

        Raises StateError (OWNED_ELSEWHERE), or KafkaError when the owner cannot be found out.
        """
        deadline = self.clock.monotonic() + _REQUIRE_SECONDS
        while self.state is LeaseState.UNKNOWN and (left := deadline - self.clock.monotonic()) > 0:
            if not await wait_for_any(self._changed, seconds=left):
                break
        refusal = self.refusal()
        if refusal is not None:
            raise refusal

    async def hold(
        self, step: Callable[[], Coroutine[Any, Any, T]], *, grace_seconds: float = STEP_GRACE_SECONDS
    ) -> T:
        """Await `step()` while this process owns the flow. When it loses the flow, `step` has `grace_seconds`
        to end and is then cancelled.

        Raises the errors of `step` and of `require`; a cancelled step may have done part of its work.
        """
        await self.require()
        halt = asyncio.Event()
        failure: Exception | None = None
        done: list[T] = []

        async def kept() -> None:
            done.append(await step())

        with self._working():
            async with asyncio.TaskGroup() as group:
                watching = self._watch(True, asyncio.Event(), halt, False)
                watcher = group.create_task(watching, name=f"lease hold {self.flow}")
                try:
                    await finish_or_cancel(kept(), stop=halt, grace_seconds=grace_seconds)
                except Exception as error:  # noqa: BLE001 (raised outside the group, which would wrap it)
                    failure = error
                finally:
                    watcher.cancel()
        if failure is not None:
            raise failure
        if not done:
            raise self._lost() or self._unknown()
        return done[0]

    def _lost(self) -> TwinlogError | None:
        """The error of an unfinished step. Part of it may be done, so the error does not name the owner for a
        second call."""
        refusal = self.refusal()
        if refusal is not None:
            refusal.metadata = {key: value for key, value in refusal.metadata.items() if key != OWNER_ADDRESS}
        return refusal

    def guard(
        self,
        loop: Loop,
        *,
        otherwise: Loop | None = None,
        in_doubt: bool = False,
        stays_in_doubt: bool = False,
    ) -> Loop:
        """A loop that runs `loop` while this process owns the flow, and `otherwise` while it does not.

        Both get their own `stop` and must be able to run again. `in_doubt`: `loop` also runs while the owner
        is not known, for work that two processes may do. `stays_in_doubt`: `loop` begins only as the owner
        and continues until another owner is known, for work that fences its rivals itself.
        """
        idle = otherwise or _idle

        async def guarded(stop: asyncio.Event) -> None:
            while not stop.is_set():
                if self._serves(in_doubt):
                    with self._working():
                        await self._run_while(True, loop, stop, in_doubt or stays_in_doubt)
                else:
                    await self._run_while(False, idle, stop, in_doubt)

        return guarded

    @property
    def is_idle(self) -> bool:
        """Whether nothing that it guards is at work."""
        return not self._at_work

    def learn(self, *, leads: bool, owner: str, asked_at: float) -> None:
        """Take what the group's coordinator has confirmed since `asked_at`, in monotonic seconds."""
        state = LeaseState.OWNER if leads else LeaseState.ELSEWHERE
        is_new_owner = self._owner != owner
        is_news = is_new_owner or self.state is not state or self.problem is not None or self.works_alone
        was = self.state
        self._state, self._owner, self.problem = state, owner, None
        self.works_alone, self._loading_since = False, None
        # How long the answer is trusted; a running step ends in the rest of the session.
        valid_seconds = max(
            self.session_seconds - STEP_GRACE_SECONDS, self.session_seconds * _LEAST_VALID_SHARE
        )
        self._valid_until, self._heard_at = asked_at + valid_seconds, asked_at
        if is_new_owner:
            self.on_owner()
        if is_new_owner or was is not self.state:
            event = "flow_owned" if leads else "flow_owned_elsewhere"
            _log.info(event, flow=str(self.flow), owner=owner, group=self.group)
            if not leads and self._is_twin():
                why = twin_deployment(self.flow, owner)
                _log.warning("twin_deployment", flow=str(self.flow), reason=why.reason, message=str(why))
        if is_news:
            # The end of the lease wakes watchers by itself: a renewal does not concern a flow's loops.
            self._tell()

    def failed(self, error: KafkaError) -> None:
        """Take that the coordinator cannot be asked."""
        # A process on standby knows an owner: without this, a brief loss of the right to join would start
        # all.
        if error.reason in NO_ELECTION and self._state is not LeaseState.ELSEWHERE:
            self._state, self.works_alone = LeaseState.OWNER, True
        if error.reason == _LOADING and self._loading_since is None:
            self._loading_since = self.clock.monotonic()
        self.problem = error
        self._tell()

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _serves(self, in_doubt: bool) -> bool:
        return self.state is LeaseState.OWNER or (in_doubt and self.state is LeaseState.UNKNOWN)

    def _seconds_left(self) -> float:
        return self._valid_until - self.clock.monotonic()

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Keeps the lease until the work ends."""
        self._at_work += 1
        try:
            yield
        finally:
            self._at_work -= 1
            if not self._at_work:
                self.on_idle()

    async def _watch(self, serves: bool, stop: asyncio.Event, halt: asyncio.Event, in_doubt: bool) -> None:
        """Set `halt` at `stop`, or when the condition for running changes."""
        while not stop.is_set():
            changed = self._changed
            if self._serves(in_doubt) is not serves:
                break
            expires = self._state is LeaseState.OWNER and not self.works_alone and self._seconds_left() > 0
            await wait_for_any(stop, changed, seconds=self._seconds_left() if expires else None)
        halt.set()

    async def _run_while(self, serves: bool, loop: Loop, stop: asyncio.Event, in_doubt: bool) -> None:
        """Run a loop until `stop`, or until the condition for running changes."""
        halt = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            watching = self._watch(serves, stop, halt, in_doubt)
            watcher = group.create_task(watching, name=f"lease watch {self.flow}")
            try:
                await loop(halt)
                if not halt.is_set():
                    raise LoopExited(f"guarded loop of {self.flow}")
            finally:
                watcher.cancel()


async def _idle(stop: asyncio.Event) -> None:
    await stop.wait()

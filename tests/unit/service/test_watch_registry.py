"""A watcher that is cut off anywhere and resumes knows in the end what an uninterrupted one knows."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.metrics import NoOpMeterProvider

from twinlog.errors import ConfigError, TwinlogError
from twinlog.service.errors_wire import ExhaustedError, ResumeTokenExpiredError
from twinlog.service.feeds.server import (
    Changed,
    Event,
    Marked,
    Progress,
    Removed,
    ResumableRegistry,
    SnapshotEnd,
    SnapshotItem,
)
from twinlog.service.waiting import wait_or_stop
from twinlog.testing.virtual_time import run_in_virtual_time

Registry = ResumableRegistry[str, int]
Step = tuple[str, str, int]

_METER = NoOpMeterProvider().get_meter("test")
_KEYS = st.sampled_from(["a", "b", "c"])
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), _KEYS, st.integers(0, 3)),
        st.tuples(st.just("remove"), _KEYS, st.just(0)),
        st.tuples(st.just("mark"), _KEYS, st.just(0)),
    ),
    max_size=25,
)


def _registry(
    *, history_id: str = "one", history_size: int = 1000, max_watchers: int = 10, conflate: bool = False
) -> Registry:
    return ResumableRegistry(
        history_id=history_id,
        meter=_METER,
        rpc_method="test/Watch",
        history_size=history_size,
        max_watchers=max_watchers,
        conflate=conflate,
    )


def _apply(registry: Registry, step: Step) -> None:
    match step:
        case ("put", key, value):
            registry.put(key, value)
        case ("remove", key, _):
            registry.remove(key)
        case (_, key, _):
            registry.mark(key)


@dataclass
class Follower:
    """What a client of a watch does with it."""

    items: dict[str, int] = field(default_factory=dict)
    marks: set[str] = field(default_factory=set)
    token: bytes = b""
    _snapshot: dict[str, int] = field(default_factory=dict)

    def begin(self) -> None:
        self._snapshot = {}

    def see(self, event: Event[str, int]) -> None:
        match event:
            case SnapshotItem():
                self._snapshot[event.key] = event.item
            case SnapshotEnd():
                self.items, self.marks = self._snapshot, set(event.marks)
            case Changed():
                self.items[event.key] = event.item
            case Removed():
                self.items.pop(event.key, None)
            case Marked():
                self.marks.add(event.mark)
        self.token = event.token


async def _follow(registry: Registry, follower: Follower, *, events: int | None) -> None:
    """Watch until `events` have come (None = until there is nothing new), from the follower's token."""
    stop = asyncio.Event()
    follower.begin()
    stream = registry.watch(follower.token, stop=stop, progress_seconds=1)
    left = events
    try:
        while left is None or left > 0:
            event = await anext(stream)
            if isinstance(event, Progress):
                return
            follower.see(event)
            left = None if left is None else left - 1
    finally:
        await stream.aclose()


@given(
    steps=_STEPS,
    cuts=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12),
    conflate=st.booleans(),
)
def test_cut_at_every_point_equals_uninterrupted(
    steps: Sequence[Step], cuts: Sequence[tuple[int, int]], conflate: bool
) -> None:
    """Each cut: so many changes happen, then the follower is connected for so many events and cut off."""

    async def scenario() -> tuple[Follower, Registry]:
        registry, follower = _registry(conflate=conflate), Follower()
        pending = list(steps)
        for changes, events in cuts:
            for step in pending[:changes]:
                _apply(registry, step)
            del pending[:changes]
            await _follow(registry, follower, events=events)
        for step in pending:
            _apply(registry, step)
        await _follow(registry, follower, events=None)
        return follower, registry

    follower, registry = run_in_virtual_time(scenario())
    assert follower.items == registry.items()
    assert follower.marks == set(registry.marks())
    assert follower.token == registry.token


@given(steps=_STEPS)
def test_a_connected_watcher_sees_changes_in_order_and_only_real_ones(steps: Sequence[Step]) -> None:
    async def scenario() -> list[Event[str, int]]:
        registry = _registry()
        stop = asyncio.Event()
        seen: list[Event[str, int]] = []

        async def watcher() -> None:
            async for event in registry.watch(b"", stop=stop):
                seen.append(event)  # noqa: PERF401 (what came before the end is wanted)

        async with asyncio.TaskGroup() as group:
            group.create_task(watcher(), name="watcher")
            await _let_others_run()
            for step in steps:
                _apply(registry, step)
                await _let_others_run()
            stop.set()
        return seen

    seen = run_in_virtual_time(scenario())
    assert isinstance(seen[0], SnapshotEnd)
    state: dict[str, int] = {}
    for event in seen[1:]:
        match event:
            case Changed():
                assert state.get(event.key) != event.item
                state[event.key] = event.item
            case Removed():
                assert state.pop(event.key) == event.item
            case _:
                assert isinstance(event, Marked)
    tokens = [event.token for event in seen]
    assert tokens == sorted(set(tokens))


async def _let_others_run() -> None:
    for _ in range(6):
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0)


def _watch_once(registry: Registry, token: bytes) -> TwinlogError | None:
    async def scenario() -> TwinlogError | None:
        stop = asyncio.Event()
        stop.set()
        try:
            async for _ in registry.watch(token, stop=stop):
                pass
        except TwinlogError as error:
            return error
        return None

    return run_in_virtual_time(scenario())


def _watch_first(registry: Registry, token: bytes) -> TwinlogError | None:
    """The error instead of the first event after the token."""

    async def scenario() -> TwinlogError | None:
        stream = registry.watch(token, stop=asyncio.Event())
        try:
            await anext(stream)
        except TwinlogError as error:
            return error
        finally:
            await stream.aclose()
        return None

    return run_in_virtual_time(scenario())


def test_a_token_of_another_history_is_expired() -> None:
    error = _watch_once(_registry(history_id="after the restart"), _registry(history_id="before").token)
    assert isinstance(error, ResumeTokenExpiredError)


def test_a_token_from_the_future_of_this_history_is_expired() -> None:
    ahead = _registry()
    ahead.put("a", 1)
    assert isinstance(_watch_once(_registry(), ahead.token), ResumeTokenExpiredError)


@pytest.mark.parametrize("token", [b"x", b"\x02" + bytes(24), bytes(24), bytes(26)])
def test_bytes_that_are_no_token_are_refused(token: bytes) -> None:
    error = _watch_once(_registry(), token)
    assert isinstance(error, ConfigError)
    assert error.reason == "INVALID_RESUME_TOKEN"


def test_a_watcher_that_is_too_slow_finds_its_place_gone() -> None:
    async def scenario() -> None:
        registry = _registry(history_size=3)
        stream = registry.watch(registry.token, stop=asyncio.Event())
        registry.put("a", 0)
        assert isinstance(await anext(stream), Changed)
        for value in range(1, 5):
            registry.put("a", value)
        with pytest.raises(ResumeTokenExpiredError):
            await anext(stream)

    run_in_virtual_time(scenario())


def test_a_slow_watcher_of_states_gets_the_newest_of_each_in_one_list() -> None:
    async def scenario() -> None:
        registry = _registry(history_size=3, conflate=True)
        stream = registry.watch_batches(registry.token, stop=asyncio.Event(), pause_seconds=1)
        for value in range(100):
            registry.put("a", value)
            registry.put("b", -value)
        registry.remove("b")
        (changed, removed) = await anext(stream)
        assert isinstance(changed, Changed)
        assert (changed.key, changed.item) == ("a", 99)
        assert isinstance(removed, Removed)
        assert removed.key == "b"
        loop = asyncio.get_running_loop()
        registry.put("a", 100)
        paused_at = loop.time()
        assert len(await anext(stream)) == 1
        assert loop.time() - paused_at >= 1
        await stream.aclose()

    run_in_virtual_time(scenario())


def test_a_state_that_was_forgotten_is_no_reason_to_miss_another() -> None:
    registry = _registry(history_size=2, conflate=True)
    before = registry.token
    for key in "abc":
        registry.put(key, 1)
    assert isinstance(_watch_first(registry, before), ResumeTokenExpiredError)
    resumed = registry.token
    registry.remove("a")
    registry.put("a", 2)
    assert _watch_first(registry, resumed) is None


def test_watchers_beyond_the_limit_are_refused_until_one_leaves() -> None:
    async def scenario() -> None:
        registry = _registry(max_watchers=1)
        first = registry.watch(b"", stop=asyncio.Event())
        await anext(first)
        with pytest.raises(ExhaustedError) as refusal:
            await anext(registry.watch(b"", stop=asyncio.Event()))
        assert refusal.value.reason == "TOO_MANY_WATCHERS"
        await first.aclose()
        assert isinstance(await anext(registry.watch(b"", stop=asyncio.Event())), SnapshotEnd)

    run_in_virtual_time(scenario())


def test_people_who_watch_do_not_keep_a_service_from_its_peers() -> None:
    async def scenario() -> None:
        registry = _registry(max_watchers=1)
        first = registry.watch(b"", stop=asyncio.Event())
        await anext(first)
        peer = registry.watch(b"", stop=asyncio.Event(), is_peer=True)
        assert isinstance(await anext(peer), SnapshotEnd)
        await first.aclose()
        with pytest.raises(ExhaustedError):
            await anext(registry.watch(b"", stop=asyncio.Event()))
        await peer.aclose()

    run_in_virtual_time(scenario())


def test_a_selecting_watcher_gets_its_keys_only_and_progress_beyond_the_others() -> None:
    async def scenario() -> list[Event[str, int]]:
        registry = _registry()
        registry.put("a", 1)
        registry.put("b", 1)
        stream = registry.watch(b"", stop=asyncio.Event(), selects=lambda key: key == "a", progress_seconds=1)
        seen = [await anext(stream), await anext(stream)]
        registry.put("b", 2)
        seen.append(await anext(stream))
        assert seen[-1].token == registry.token
        await stream.aclose()
        return seen

    snapshot, end, progress = run_in_virtual_time(scenario())
    assert isinstance(snapshot, SnapshotItem)
    assert snapshot.key == "a"
    assert isinstance(end, SnapshotEnd)
    assert isinstance(progress, Progress)


def test_a_selecting_watcher_hears_in_time_that_the_service_lives_however_much_else_changes() -> None:
    """Its client takes a stream that says nothing for thirty seconds for a lost one."""

    async def scenario() -> list[float]:
        registry, stop, now = _registry(), asyncio.Event(), asyncio.get_running_loop().time
        registry.put("a", 1)

        async def change_others() -> None:
            number = 0
            while not await wait_or_stop(stop, 1.0):
                number += 1
                registry.put("b", number)

        heard = []
        async with asyncio.TaskGroup() as group:
            group.create_task(change_others(), name="others")
            stream = registry.watch(b"", stop=stop, selects=lambda key: key == "a", progress_seconds=10.0)
            async for event in stream:
                if isinstance(event, Progress):
                    heard.append(now())
                if len(heard) == 4:
                    stop.set()
        return heard

    heard = run_in_virtual_time(scenario())
    assert [later - earlier for earlier, later in pairwise(heard)] == pytest.approx([10, 10, 10], abs=1.5)


def test_what_changes_nothing_is_no_change() -> None:
    registry = _registry()
    assert registry.put("a", 1)
    token = registry.token

    assert not registry.put("a", 1)
    assert not registry.remove("b")
    assert registry.mark("m")
    after_mark = registry.token
    assert not registry.mark("m")
    assert token != after_mark == registry.token

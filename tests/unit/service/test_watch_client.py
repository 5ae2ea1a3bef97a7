"""The client's reconnect loop: tokens, snapshots that come again, back-off."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import Enum

import grpc
import pytest
from grpc.aio import AioRpcError, Metadata
from grpc_status import rpc_status

from twinlog.service.errors_wire import ResumeTokenExpiredError, status_of
from twinlog.service.feeds.client import Lost, Received, Restarted, WatchEvent, watch
from twinlog.service.runtime import Backoff
from twinlog.testing.virtual_time import run_in_virtual_time


@dataclass(frozen=True)
class Answer:
    resume_token: bytes
    text: str = ""


class Failure(Enum):
    """What a script may say instead of an answer."""

    AWAY = "the connection breaks"
    SILENT = "nothing comes any more"
    EXPIRED = "the server refuses the token"


Script = Sequence[Answer | Failure]


class ScriptedCall:
    def __init__(self, script: Script) -> None:
        self._script = script
        self.cancelled = False

    async def __aiter__(self) -> AsyncIterator[Answer]:
        for step in self._script:
            if isinstance(step, Answer):
                yield step
            elif step is Failure.SILENT:
                await asyncio.Event().wait()
            else:
                raise _rpc_error(expired=step is Failure.EXPIRED)

    def cancel(self) -> bool:
        self.cancelled = True
        return True


def _rpc_error(*, expired: bool) -> AioRpcError:
    if not expired:
        return AioRpcError(grpc.StatusCode.UNAVAILABLE, Metadata(), Metadata(), details="gone")
    status = rpc_status.to_status(status_of(ResumeTokenExpiredError("too old"), service="configsync"))
    return AioRpcError(status.code, Metadata(), Metadata(*status.trailing_metadata), details=status.details)


@dataclass(frozen=True)
class Watched:
    tokens: list[bytes]
    """The token each stream was opened with."""
    events: list[WatchEvent[Answer]]
    opened_at: list[float]


def _watch(scripts: Sequence[Script]) -> Watched:
    """Play the scripts, one per connection, until they are used up."""

    async def scenario() -> Watched:
        stop = asyncio.Event()
        watched = Watched([], [], [])
        calls: list[ScriptedCall] = []

        def open_stream(token: bytes) -> ScriptedCall:
            watched.tokens.append(token)
            watched.opened_at.append(asyncio.get_running_loop().time())
            calls.append(ScriptedCall(scripts[len(calls)]))
            if len(calls) == len(scripts):
                stop.set()
            return calls[-1]

        backoff = Backoff(initial_seconds=1, max_seconds=8, random=lambda: 1.0)
        async for event in watch(open_stream, peer="configsync", stop=stop, backoff=backoff, idle_seconds=30):
            watched.events.append(event)
        assert all(call.cancelled for call in calls)
        return watched

    return run_in_virtual_time(scenario())


def _texts(watched: Watched) -> list[str]:
    return [event.response.text for event in watched.events if isinstance(event, Received)]


def test_a_broken_stream_goes_on_from_the_last_token() -> None:
    watched = _watch([[Answer(b"1", "a"), Answer(b"2", "b"), Failure.AWAY], [Answer(b"3", "c")]])

    assert watched.tokens == [b"", b"2"]
    assert _texts(watched) == ["a", "b", "c"]
    assert sum(isinstance(event, Restarted) for event in watched.events) == 1


def test_a_snapshot_that_was_cut_off_begins_again() -> None:
    watched = _watch([[Answer(b"", "item"), Failure.AWAY], [Answer(b"", "item"), Answer(b"1", "end")]])

    assert watched.tokens == [b"", b""]
    assert [type(event) for event in watched.events[:4]] == [Restarted, Received, Lost, Restarted]


def test_an_expired_token_starts_again_from_a_snapshot_at_once() -> None:
    watched = _watch([[Answer(b"1", "a"), Failure.AWAY], [Failure.EXPIRED], [Answer(b"9", "again")]])

    assert watched.tokens == [b"", b"1", b""]
    assert watched.opened_at[2] == watched.opened_at[1]
    kinds = [type(event) for event in watched.events]
    assert kinds == [Restarted, Received, Lost, Restarted, Received, Lost]


def test_waits_grow_while_the_peer_is_away_and_start_again_after_a_response() -> None:
    watched = _watch(
        [[Failure.AWAY], [Failure.AWAY], [Failure.AWAY], [Answer(b"1"), Failure.AWAY], [Failure.AWAY]]
    )

    waits = [
        later - earlier for earlier, later in zip(watched.opened_at, watched.opened_at[1:], strict=False)
    ]
    assert waits == pytest.approx([1, 2, 4, 1])


def test_a_silent_stream_counts_as_broken() -> None:
    watched = _watch([[Answer(b"1", "a"), Failure.SILENT], [Answer(b"2", "b")]])

    lost = next(event for event in watched.events if isinstance(event, Lost))
    assert lost.error.reason == "WATCH_SILENT"
    assert watched.tokens == [b"", b"1"]
    assert watched.opened_at[1] == pytest.approx(31)


def test_a_stream_that_the_server_ends_is_opened_again() -> None:
    watched = _watch([[Answer(b"1", "a")], [Answer(b"2", "b")]])

    assert next(event.error.reason for event in watched.events if isinstance(event, Lost)) == "WATCH_ENDED"
    assert watched.tokens == [b"", b"1"]

"""The client's half of a watch: one endless stream over a connection that may break."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import grpc

from twinlog.errors import TwinlogError
from twinlog.service.errors_wire import PeerUnavailableError, ResumeTokenExpiredError, error_from_rpc
from twinlog.service.runtime import Backoff, wait_or_stop

IDLE_SECONDS = 30.0
"""Servers send something every 10 s: a stream that is silent for this long is dead."""


class WatchResponse(Protocol):
    """A response of any of our Watch methods."""

    @property
    def resume_token(self) -> bytes: ...


R = TypeVar("R", bound=WatchResponse)
R_co = TypeVar("R_co", bound=WatchResponse, covariant=True)


class WatchCall(Protocol[R_co]):
    """The methods of a grpc.aio server-streaming call that a watch uses."""

    def __aiter__(self) -> AsyncIterator[R_co]: ...

    def cancel(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Restarted:
    """The stream begins with a snapshot, which replaces the known state once it is complete."""


@dataclass(frozen=True, slots=True)
class Received(Generic[R]):
    response: R


@dataclass(frozen=True, slots=True)
class Lost:
    """The stream broke and is opened again later. The known state stays valid."""

    error: TwinlogError


WatchEvent = Restarted | Received[R] | Lost


async def watch(
    open_stream: Callable[[bytes], WatchCall[R]],
    *,
    peer: str,
    stop: asyncio.Event,
    backoff: Backoff,
    idle_seconds: float = IDLE_SECONDS,
) -> AsyncIterator[WatchEvent[R]]:
    """Yield the watch's events until `stop`, reopening the stream from the last token whenever it ends.

    `open_stream(token)` starts the RPC without waiting. A response counts as seen when the next one is
    requested, so a caller that fails while handling one gets it again. An expired token starts again from a
    snapshot. Never raises for a peer that is away. Notices `stop` between responses only: run it in a task
    that is cancelled then.
    """
    token = b""
    fresh = True
    while not stop.is_set():
        call = open_stream(token)
        try:
            if fresh:
                yield Restarted()
                fresh = False
            async for response in _until_silent(call, idle_seconds, peer):
                backoff.reset()
                yield Received(response)
                token = response.resume_token
            error: TwinlogError = PeerUnavailableError(f"{peer} ended the watch", reason="WATCH_ENDED")
        except grpc.RpcError as failure:
            error = error_from_rpc(failure, peer=peer)
        except PeerUnavailableError as silence:
            error = silence
        finally:
            call.cancel()
        if isinstance(error, ResumeTokenExpiredError) and token:
            token, fresh = b"", True
            continue
        # A snapshot that was cut off has no token: it starts again.
        fresh = not token
        yield Lost(error)
        await wait_or_stop(stop, backoff.next())


async def _until_silent(call: WatchCall[R], idle_seconds: float, peer: str) -> AsyncIterator[R]:
    responses = aiter(call)
    while True:
        try:
            async with asyncio.timeout(idle_seconds):
                response = await anext(responses)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise PeerUnavailableError(
                f"{peer} said nothing for {idle_seconds:g} s", reason="WATCH_SILENT", metadata={"peer": peer}
            ) from None
        yield response

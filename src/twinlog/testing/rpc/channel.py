"""A client's end of calls: `grpc.aio.Channel` and the calls that its stubs make."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Sequence
from functools import partial
from typing import Any

import grpc

from twinlog.testing.rpc.link import CANCELLED, TOO_LATE, Link, Metadata, Status

Connect = Callable[[Link, bool], Coroutine[Any, Any, None]]
"""Give a call to the server of the target, or end it; True: wait until there is one."""

_CHANNEL_CLOSED = Status(grpc.StatusCode.CANCELLED, "Channel closed.")
_FINISHED = "RPC already finished."


class MemoryChannel(grpc.aio.Channel):
    """Connects with each call."""

    def __init__(self, connect: Connect, peer: str, interceptors: Sequence[Any]) -> None:
        self._connect = connect
        self._peer = peer
        self._interceptors = interceptors
        self._calls: dict[Link, MemoryCall] = {}
        self._closed = False

    async def __aenter__(self) -> "MemoryChannel":
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        self._closed = True
        for link in list(self._calls):
            link.end(_CHANNEL_CLOSED)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return grpc.ChannelConnectivity.IDLE

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        raise NotImplementedError

    async def channel_ready(self) -> None:
        """There is no way that a server in memory could not be reached on."""

    def unary_unary(self, *arguments: Any, **more: Any) -> Any:
        return self._stub("intercept_unary_unary", *arguments, **more)

    def unary_stream(self, *arguments: Any, **more: Any) -> Any:
        return self._stub("intercept_unary_stream", *arguments, **more)

    def stream_unary(self, *arguments: Any, **more: Any) -> Any:
        return self._stub("intercept_stream_unary", *arguments, **more)

    def stream_stream(self, *arguments: Any, **more: Any) -> Any:
        return self._stub("intercept_stream_stream", *arguments, **more)

    def _stub(
        self,
        interception: str,
        method: str,
        request_serializer: Callable[[Any], bytes] | None = None,
        response_deserializer: Callable[[bytes], Any] | None = None,
        _registered_method: bool | None = None,
    ) -> Any:
        wraps = [getattr(each, interception) for each in self._interceptors if hasattr(each, interception)]

        def call(
            request: Any = None,
            *,
            timeout: float | None = None,
            metadata: Any = None,
            credentials: Any = None,
            wait_for_ready: bool | None = None,
        ) -> MemoryCall:
            if self._closed:
                raise grpc.aio.UsageError("Channel is closed.")
            loop = asyncio.get_running_loop()
            deadline = None if timeout is None else loop.time() + timeout
            link = Link(method=method, peer=self._peer, deadline=deadline)
            details = grpc.aio.ClientCallDetails(
                method, timeout, grpc.aio.Metadata(*(metadata or ())), credentials, wait_for_ready
            )
            made = (MemoryStreamCall if interception.endswith("_stream") else MemoryUnaryCall)(
                link, request_serializer or bytes, response_deserializer or bytes, streams=request is None
            )
            self._calls[link] = made
            link.on_end.append(partial(self._calls.pop, link, None))
            if deadline is not None:
                link.on_end.append(loop.call_at(deadline, link.end, TOO_LATE).cancel)
            made.start(wraps, self._connect, details, request)
            return made

        return call


class MemoryCall:
    """What calls of all four kinds have."""

    def __init__(
        self, link: Link, write: Callable[[Any], bytes], read: Callable[[bytes], Any], *, streams: bool
    ) -> None:
        self._link = link
        self._write = write
        self._read = read
        self._is_written = not streams
        self._cancelled = False
        self._starting: asyncio.Task[Any] | None = None
        self._answer: asyncio.Task[Any] | None = None

    def start(
        self, wraps: Sequence[Callable[..., Awaitable[Any]]], connect: Connect, details: Any, request: Any
    ) -> None:
        async def begin(details: Any, request: Any) -> MemoryCall:
            self._link.metadata = tuple(details.metadata or ())
            if request is not None:
                await self._link.requests.put(self._write(request))
                self._link.requests.close()
            if self._link.status is None:
                await connect(self._link, bool(details.wait_for_ready))
            return self

        run: Any = begin
        for wrap in reversed(wraps):
            run = partial(wrap, run)
        loop = asyncio.get_running_loop()
        self._starting = loop.create_task(run(details, request), name=f"begin {self._link.method}")
        self._link.on_end.append(self._starting.cancel)
        self._starting.add_done_callback(self._started)

    def _started(self, starting: "asyncio.Task[Any]") -> None:
        if not starting.cancelled() and (error := starting.exception()) is not None:
            self._link.end(Status(grpc.StatusCode.INTERNAL, str(error)))

    def cancel(self) -> bool:
        if self.done():
            return False
        self._cancelled = True
        self._link.end(CANCELLED)
        return True

    def done(self) -> bool:
        return self._link.status is not None

    def cancelled(self) -> bool:
        return self._cancelled

    def time_remaining(self) -> float | None:
        deadline = self._link.deadline
        return None if deadline is None else max(0.0, deadline - asyncio.get_running_loop().time())

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        if self.done():
            callback(self)
        else:
            self._link.on_end.append(partial(callback, self))

    async def initial_metadata(self) -> Metadata:
        await self._link.until(lambda: self._link.initial is not None or self.done())
        return self._link.initial or ()

    async def code(self) -> grpc.StatusCode:
        return (await self._status()).code

    async def details(self) -> str:
        return (await self._status()).details

    async def trailing_metadata(self) -> Metadata:
        return (await self._status()).trailing

    async def read(self) -> Any:
        try:
            message = await self._link.answers.get()
            if message is None:
                await self._raise_for_status()
                return grpc.aio.EOF
        except asyncio.CancelledError:
            self.cancel()
            raise
        return self._read(message)

    async def write(self, message: Any) -> None:
        if self.done() or self._is_written:
            raise asyncio.InvalidStateError(_FINISHED)
        try:
            assert self._starting is not None
            await asyncio.wait([self._starting])
            await self._link.requests.put(self._write(message))
        except asyncio.CancelledError:
            self.cancel()
            raise
        if self.done():
            await self._raise_for_status()

    async def done_writing(self) -> None:
        if not self.done():
            self._is_written = True
            self._link.requests.close()

    async def _status(self) -> Status:
        await self._link.until(self.done)
        assert self._link.status is not None
        return self._link.status

    async def _raise_for_status(self) -> None:
        status = await self._status()
        if self._cancelled:
            raise asyncio.CancelledError
        if status.code is not grpc.StatusCode.OK:
            raise grpc.aio.AioRpcError(
                status.code,
                grpc.aio.Metadata(*(self._link.initial or ())),
                grpc.aio.Metadata(*status.trailing),
                details=status.details,
            )


class MemoryStreamCall(MemoryCall):
    """A call with a stream of answers."""

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._answers()

    async def _answers(self) -> AsyncIterator[Any]:
        while (message := await self.read()) is not grpc.aio.EOF:
            yield message


class MemoryUnaryCall(MemoryCall):
    """A call with one answer."""

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._one().__await__()

    async def _one(self) -> Any:
        if self._answer is None:
            self._answer = asyncio.get_running_loop().create_task(self._only_answer(), name="answer")
        try:
            return await asyncio.shield(self._answer)
        except asyncio.CancelledError:
            self.cancel()
            raise

    async def _only_answer(self) -> Any:
        message = await self._link.answers.get()
        await self._raise_for_status()
        assert message is not None
        return self._read(message)

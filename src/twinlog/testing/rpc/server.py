"""A server's end of calls: `grpc.aio.Server` and `grpc.aio.ServicerContext`."""

import asyncio
import contextlib
import contextvars
import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import partial
from typing import Any, NoReturn

import grpc

from twinlog.testing.rpc.link import Link, Metadata, Pipe, Status

_UNKNOWN_METHOD = Status(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
_CUT = Status(grpc.StatusCode.UNAVAILABLE, "Cancelling all calls")


class MemoryServer(grpc.aio.Server):
    """Methods as gRPC documents them. Its calls run in the context in which it was started."""

    def __init__(
        self,
        bind: Callable[["MemoryServer", str], int],
        interceptors: Sequence[Any],
        tell: Callable[[], None],
    ) -> None:
        """`bind` gives the server an address, `tell` says that it serves. `bind` raises RuntimeError."""
        self._tell = tell
        self._bind = bind
        self._interceptors = interceptors
        self._handlers: list[Any] = []
        self._calls: dict[Link, asyncio.Task[None]] = {}
        self._context = contextvars.copy_context()
        self._idle = asyncio.Event()
        self.serves = False
        self.on_close: list[Callable[[], object]] = []

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Iterable[Any]) -> None:
        self._handlers.extend(generic_rpc_handlers)

    def add_registered_method_handlers(self, service_name: str, method_handlers: Any) -> None:
        """The generated code adds the same ones as generic handlers."""

    def add_insecure_port(self, address: str) -> int:
        return self._bind(self, address)

    def add_secure_port(self, address: str, server_credentials: grpc.ServerCredentials) -> int:
        return self._bind(self, address)

    async def start(self) -> None:
        self._context = contextvars.copy_context()
        self.serves = True
        self._tell()

    def close(self) -> None:
        """Take no more calls."""
        self.serves = False
        while self.on_close:
            self.on_close.pop()()

    async def stop(self, grace: float | None) -> None:
        self.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace or 0.0):
                while self._calls:
                    self._idle.clear()
                    await self._idle.wait()
        tasks = list(self._calls.values())
        self.cut(_CUT)
        if tasks:
            await asyncio.wait(tasks)

    def cut(self, status: Status) -> None:
        """End all calls."""
        self.close()
        for link in list(self._calls):
            link.end(status)

    async def wait_for_termination(self, timeout: float | None = None) -> bool:
        raise NotImplementedError

    def accept(self, link: Link) -> None:
        """Serve a client's call."""
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._serve(link), name=f"rpc {link.method}", context=self._context.copy())
        self._calls[link] = task
        link.on_end.append(task.cancel)
        task.add_done_callback(partial(self._served, link))

    def _served(self, link: Link, _task: "asyncio.Task[None]") -> None:
        del self._calls[link]
        # As when the client's cancellation, or that of the whole process, met the handler.
        link.end(Status(grpc.StatusCode.CANCELLED, "Cancelled on the server side"))
        if not self._calls:
            self._idle.set()

    async def _serve(self, link: Link) -> None:
        context = _Context(link)
        try:
            handler = await self._find(link)
            if handler is None:
                status = _UNKNOWN_METHOD
            else:
                await _behave(handler, link, context)
                status = context.status
        except grpc.aio.AbortError:
            status = context.status
        except Exception as error:  # noqa: BLE001 (the boundary to the wire)
            # As gRPC: the exception's text reaches the client.
            status = Status(grpc.StatusCode.UNKNOWN, f"Unexpected {type(error)}: {error}")
        if link.status is None:
            link.on_end.remove(asyncio.current_task().cancel)  # type: ignore[union-attr]
            link.begin(())
            link.end(status)

    async def _find(self, link: Link) -> Any:
        details = _Details(link.method, link.metadata)

        async def found(details: Any) -> Any:
            return next((each for one in self._handlers if (each := one.service(details))), None)

        find: Any = found
        for interceptor in reversed(self._interceptors):
            find = partial(interceptor.intercept_service, find)
        return await find(details)


class _Details(grpc.HandlerCallDetails):
    def __init__(self, method: str, metadata: Metadata) -> None:
        self.method = method
        self.invocation_metadata = metadata


async def _behave(handler: Any, link: Link, context: "_Context") -> None:
    context.write_message = handler.response_serializer or bytes
    requests = _requests(link.requests, handler.request_deserializer or bytes)
    request = requests if handler.request_streaming else await anext(requests)
    behaviour = handler.stream_stream or handler.stream_unary or handler.unary_stream or handler.unary_unary
    answering = behaviour(request, context)
    if inspect.isasyncgen(answering):
        async for answer in answering:
            await context.write(answer)
        return
    answer = await answering
    if not handler.response_streaming and context.status.code is grpc.StatusCode.OK:
        await context.write(answer)


async def _requests(pipe: Pipe, read: Callable[[bytes], Any]) -> AsyncIterator[Any]:
    while (message := await pipe.get()) is not None:
        yield read(message)


class _Context:
    """What a handler is given."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.status = Status(grpc.StatusCode.OK)
        self.write_message: Callable[[Any], bytes] = bytes

    async def write(self, message: Any) -> None:
        self._link.begin(())
        await self._link.answers.put(self.write_message(message))

    async def send_initial_metadata(self, initial_metadata: Any) -> None:
        self._link.begin(tuple(initial_metadata))

    async def abort(self, code: Any, details: str = "", trailing_metadata: Any = ()) -> NoReturn:
        self.status = Status(code, details, tuple(trailing_metadata))
        raise grpc.aio.AbortError("Locally aborted.")

    async def abort_with_status(self, status: Any) -> NoReturn:
        await self.abort(status.code, status.details, status.trailing_metadata or ())

    def set_trailing_metadata(self, trailing_metadata: Any) -> None:
        self.status = Status(self.status.code, self.status.details, tuple(trailing_metadata))

    def code(self) -> grpc.StatusCode:
        return self.status.code

    def details(self) -> str:
        return self.status.details

    def trailing_metadata(self) -> Any:
        return self.status.trailing

    def invocation_metadata(self) -> Any:
        return self._link.metadata

    def peer(self) -> str:
        return self._link.peer

    def auth_context(self) -> dict[str, Any]:
        return {}

    def time_remaining(self) -> Any:
        deadline = self._link.deadline
        return None if deadline is None else max(0.0, deadline - asyncio.get_running_loop().time())

    def cancelled(self) -> bool:
        return self._link.status is not None and self._link.status.code is grpc.StatusCode.CANCELLED

    def done(self) -> bool:
        return self._link.status is not None

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._link.on_end.append(partial(callback, self))

"""How gRPC behaves where Twinlog relies on it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.rpc import code_pb2, status_pb2  # type: ignore[import-untyped]
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_status import rpc_status

from twinlog.service.waiting import wait_or_stop

METHOD = "/test.Service/"
LATEST_SECONDS = 30.0


class Handlers(grpc.GenericRpcHandler):
    """Methods of a service whose messages are bytes, by name; `seen` is what they noticed."""

    def __init__(self) -> None:
        self.seen: asyncio.Queue[Any] = asyncio.Queue()
        self._methods: dict[str, Any] = {
            "Echo": grpc.unary_unary_rpc_method_handler(self.echo),
            "Count": grpc.unary_stream_rpc_method_handler(self.count),
            "Talk": grpc.stream_stream_rpc_method_handler(self.talk),
            "Commands": grpc.stream_stream_rpc_method_handler(self.commands),
            "Refuse": grpc.unary_unary_rpc_method_handler(self.refuse),
            "RefuseLate": grpc.unary_stream_rpc_method_handler(self.refuse_late),
            "Explain": grpc.unary_unary_rpc_method_handler(self.explain),
            "Crash": grpc.unary_unary_rpc_method_handler(self.crash),
            "Hang": grpc.unary_unary_rpc_method_handler(self.hang),
            "Flood": grpc.unary_stream_rpc_method_handler(self.flood),
        }

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        return self._methods.get(details.method.removeprefix(METHOD))

    async def noticed(self) -> Any:
        async with asyncio.timeout(LATEST_SECONDS):
            return await self.seen.get()

    async def echo(self, request: bytes, context: Any) -> bytes:
        told = dict(context.invocation_metadata())
        await context.send_initial_metadata((("first", told.get("mine", "")),))
        context.set_trailing_metadata((("last", "word"), ("raw-bin", b"\x00\xff")))
        return request

    async def count(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        for number in range(int(request)):
            yield b"%d" % number

    async def talk(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        try:
            async for request in requests:
                yield request.upper()
            yield b"the end"
        finally:
            # The requests of a call that is cut off may just end, before the handler is cancelled.
            self.seen.put_nowait("ended")

    async def commands(self, requests: AsyncIterator[bytes], context: Any) -> None:
        """Writes through the context, and ends while the client still writes."""
        await context.write(b"begin")
        async for request in requests:
            if request == b"enough":
                return
            await context.write(request)

    async def refuse(self, request: bytes, context: Any) -> bytes:
        await context.abort(grpc.StatusCode.NOT_FOUND, "no such thing", (("why", "gone"),))
        raise AssertionError

    async def refuse_late(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield b"one"
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "that was all")

    async def explain(self, request: bytes, context: Any) -> bytes:
        status = status_pb2.Status(code=code_pb2.RESOURCE_EXHAUSTED, message="too much")
        await context.abort_with_status(rpc_status.to_status(status))
        raise AssertionError

    async def crash(self, request: bytes, context: Any) -> bytes:
        raise ValueError("a defect")

    async def hang(self, request: bytes, context: Any) -> bytes:
        self.seen.put_nowait(context.time_remaining())
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.seen.put_nowait("cancelled")
            raise
        raise AssertionError

    async def flood(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        for number in range(1000):
            self.seen.put_nowait(number)
            yield bytes(100_000)


class AsStream(grpc.aio.ServerInterceptor):
    """Serves a method with one request as a stream of requests, and refuses all without a word."""

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None or handler.unary_unary is None:
            return handler

        async def behave(requests: AsyncIterator[bytes], context: Any) -> bytes:
            if ("word", "open") not in tuple(context.invocation_metadata()):
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the word?")
            return bytes(await handler.unary_unary(await anext(requests), context))

        return grpc.stream_unary_rpc_method_handler(behave)


class SaysTheWord(grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        metadata = grpc.aio.Metadata(*(client_call_details.metadata or ()))
        metadata.add("word", "open")
        return await continuation(client_call_details._replace(metadata=metadata), request)


async def failure(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


class RpcContract:
    """Subclasses give `rpc`: the module grpc.aio, or what stands for it."""

    @pytest.fixture
    def rpc(self) -> Any:
        raise NotImplementedError

    @pytest.fixture
    def handlers(self) -> Handlers:
        return Handlers()

    @pytest.fixture
    async def server(self, rpc: Any, handlers: Handlers) -> AsyncIterator[Any]:
        server = rpc.server(interceptors=[], options=(("grpc.so_reuseport", 0),))
        server.add_generic_rpc_handlers((handlers,))
        yield server
        await server.stop(0)

    @pytest.fixture
    async def target(self, server: Any) -> str:
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        return f"127.0.0.1:{port}"

    @pytest.fixture
    async def channel(self, rpc: Any, target: str) -> AsyncIterator[Any]:
        async with rpc.insecure_channel(target, options=(), interceptors=[]) as channel:
            yield channel

    async def test_one_answer_with_metadata(self, channel: Any) -> None:
        call = channel.unary_unary(METHOD + "Echo")(b"hello", metadata=(("mine", "metadata"),))
        assert ("first", "metadata") in tuple(await call.initial_metadata())
        assert await call == b"hello"
        assert await call.code() is grpc.StatusCode.OK
        trailing = tuple(await call.trailing_metadata())
        assert ("last", "word") in trailing
        assert ("raw-bin", b"\x00\xff") in trailing
        assert call.done()
        assert not call.cancel()

    async def test_answers_in_order(self, channel: Any) -> None:
        call = channel.unary_stream(METHOD + "Count")(b"4")
        assert [answer async for answer in call] == [b"0", b"1", b"2", b"3"]
        call = channel.unary_stream(METHOD + "Count")(b"1")
        assert await call.read() == b"0"
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK

    async def test_a_conversation(self, channel: Any) -> None:
        call = channel.stream_stream(METHOD + "Talk")()
        await call.write(b"one")
        assert await call.read() == b"ONE"
        await call.write(b"two")
        assert await call.read() == b"TWO"
        await call.done_writing()
        assert await call.read() == b"the end"
        assert await call.read() is grpc.aio.EOF
        with pytest.raises(asyncio.InvalidStateError):
            await call.write(b"three")

    async def test_a_server_ends_a_conversation(self, channel: Any) -> None:
        call = channel.stream_stream(METHOD + "Commands")()
        assert await call.read() == b"begin"
        await call.write(b"enough")
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK
        with pytest.raises(asyncio.InvalidStateError):
            await call.write(b"more")

    async def test_refusals(self, channel: Any) -> None:
        refusal = await failure(channel.unary_unary(METHOD + "Refuse")(b""))
        assert (refusal.code(), refusal.details()) == (grpc.StatusCode.NOT_FOUND, "no such thing")
        assert ("why", "gone") in tuple(refusal.trailing_metadata())
        status = rpc_status.from_call(await failure(channel.unary_unary(METHOD + "Explain")(b"")))
        assert status is not None
        assert (status.code, status.message) == (code_pb2.RESOURCE_EXHAUSTED, "too much")
        defect = await failure(channel.unary_unary(METHOD + "Crash")(b""))
        assert defect.code() is grpc.StatusCode.UNKNOWN
        assert "a defect" in (defect.details() or "")
        assert (await failure(channel.unary_unary(METHOD + "Nothing")(b""))).code() is (
            grpc.StatusCode.UNIMPLEMENTED
        )

    async def test_answers_arrive_before_the_refusal(self, channel: Any) -> None:
        answers = aiter(channel.unary_stream(METHOD + "RefuseLate")(b""))
        assert await anext(answers) == b"one"
        refusal = await failure(anext(answers))
        assert refusal.code() is grpc.StatusCode.FAILED_PRECONDITION

    async def test_a_deadline_ends_both_sides(self, channel: Any, handlers: Handlers) -> None:
        late = await failure(channel.unary_unary(METHOD + "Hang")(b"", timeout=2.0))
        assert late.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        # gRPC rounds a deadline up on its way, and a server that stood still meanwhile has none of it left.
        assert isinstance(await handlers.noticed(), float)
        assert await handlers.noticed() == "cancelled"

    async def test_without_a_deadline_no_time_is_told(self, channel: Any, handlers: Handlers) -> None:
        call = channel.unary_unary(METHOD + "Hang")(b"")
        assert await handlers.noticed() is None
        call.cancel()
        assert await handlers.noticed() == "cancelled"
        assert await call.code() is grpc.StatusCode.CANCELLED
        with pytest.raises(asyncio.CancelledError):
            await call

    async def test_a_waiting_task_that_is_cancelled_cancels_the_call(
        self, channel: Any, handlers: Handlers
    ) -> None:
        async def wait() -> None:
            await channel.unary_unary(METHOD + "Hang")(b"")

        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(wait(), name="a caller")
            await handlers.noticed()
            waiting.cancel()
            assert await handlers.noticed() == "cancelled"
        assert waiting.cancelled()

    async def test_a_read_that_is_cancelled_cancels_the_call(self, channel: Any, handlers: Handlers) -> None:
        call = channel.stream_stream(METHOD + "Talk")()
        await call.write(b"one")
        assert await call.read() == b"ONE"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await call.read()
        assert await handlers.noticed() == "ended"
        assert call.cancelled()

    async def test_a_closed_channel_cancels_its_calls(
        self, rpc: Any, target: str, handlers: Handlers
    ) -> None:
        channel = rpc.insecure_channel(target, options=(), interceptors=[])
        call = channel.unary_unary(METHOD + "Hang")(b"")
        await handlers.noticed()
        await channel.close()
        assert await handlers.noticed() == "cancelled"
        with pytest.raises((asyncio.CancelledError, grpc.aio.AioRpcError)):
            await call

    async def test_nobody_listens(self, rpc: Any, server: Any) -> None:
        port = server.add_insecure_port("127.0.0.1:0")
        async with rpc.insecure_channel("127.0.0.1:1", options=(), interceptors=[]) as nobody:
            refused = await failure(nobody.unary_unary(METHOD + "Echo")(b""))
            assert refused.code() is grpc.StatusCode.UNAVAILABLE
            waits = nobody.unary_unary(METHOD + "Echo")(b"", wait_for_ready=True, timeout=0.1)
            assert (await failure(waits)).code() is grpc.StatusCode.DEADLINE_EXCEEDED
        async with rpc.insecure_channel(f"127.0.0.1:{port}", options=(), interceptors=[]) as patient:
            call = patient.unary_unary(METHOD + "Echo")(b"late", wait_for_ready=True)
            await server.start()
            assert await call == b"late"

    async def test_a_port_is_taken_once(self, rpc: Any, target: str) -> None:
        other = rpc.server(interceptors=[], options=(("grpc.so_reuseport", 0),))
        with pytest.raises(RuntimeError):
            other.add_insecure_port(target)

    async def test_a_server_that_stops_lets_calls_end(
        self, channel: Any, server: Any, handlers: Handlers
    ) -> None:
        call = channel.stream_stream(METHOD + "Talk")()
        await call.write(b"one")
        assert await call.read() == b"ONE"
        async with asyncio.TaskGroup() as group:
            group.create_task(server.stop(LATEST_SECONDS), name="stop")
            await wait_or_stop(asyncio.Event(), 0)
            await call.write(b"two")
            assert await call.read() == b"TWO"
            await call.done_writing()
            assert await call.read() == b"the end"
        assert (await failure(channel.unary_unary(METHOD + "Echo")(b""))).code() is (
            grpc.StatusCode.UNAVAILABLE
        )

    async def test_a_server_that_stops_at_once_breaks_calls(
        self, channel: Any, server: Any, handlers: Handlers
    ) -> None:
        call = channel.stream_stream(METHOD + "Talk")()
        await call.write(b"one")
        assert await call.read() == b"ONE"
        await server.stop(0)
        assert await handlers.noticed() == "ended"
        assert (await failure(call.read())).code() in (
            grpc.StatusCode.UNAVAILABLE,
            grpc.StatusCode.CANCELLED,
        )

    async def test_a_sender_is_not_far_ahead(self, channel: Any, handlers: Handlers) -> None:
        call = channel.unary_stream(METHOD + "Flood")(b"")
        for _ in range(3):
            assert len(await call.read()) == 100_000
        await wait_or_stop(asyncio.Event(), 0.2)
        assert handlers.seen.qsize() < 200
        call.cancel()

    async def test_interceptors_of_both_sides(self, rpc: Any, handlers: Handlers) -> None:
        server = rpc.server(interceptors=[AsStream()], options=())
        server.add_generic_rpc_handlers((handlers,))
        target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        async with (
            rpc.insecure_channel(target, options=(), interceptors=[]) as plain,
            rpc.insecure_channel(target, options=(), interceptors=[SaysTheWord()]) as known,
        ):
            refused = await failure(plain.unary_unary(METHOD + "Echo")(b"hello"))
            assert refused.code() is grpc.StatusCode.UNAUTHENTICATED
            assert await known.unary_unary(METHOD + "Echo")(b"hello") == b"hello"
            known_call = known.unary_unary(METHOD + "Refuse")(b"hello")
            assert (await failure(known_call)).code() is grpc.StatusCode.NOT_FOUND
        await server.stop(0)

    async def test_generated_stubs_and_servicers(self, rpc: Any) -> None:
        servicer = health.aio.HealthServicer()
        server = rpc.server(interceptors=[], options=())
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
        target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        await servicer.set("x", health_pb2.HealthCheckResponse.SERVING)
        async with rpc.insecure_channel(target, options=(), interceptors=[]) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            asked = health_pb2.HealthCheckRequest(service="x")
            assert (await stub.Check(asked)).status == health_pb2.HealthCheckResponse.SERVING
            watch: Any = stub.Watch(asked)
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
            await servicer.set("x", health_pb2.HealthCheckResponse.NOT_SERVING)
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
            watch.cancel()
        await server.stop(0)

    async def test_callbacks_at_the_end(self, channel: Any) -> None:
        ended: asyncio.Queue[Any] = asyncio.Queue()
        call = channel.unary_stream(METHOD + "Count")(b"2")
        call.add_done_callback(ended.put_nowait)
        assert [answer async for answer in call] == [b"0", b"1"]
        async with asyncio.timeout(LATEST_SECONDS):
            assert await ended.get() is call

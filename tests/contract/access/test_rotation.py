"""Certificates and tokens are replaced under calls."""

import asyncio
from functools import partial
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from contract.access.access_rig import look, opened, person, put
from twinlog.errors import ConfigError
from twinlog.service.errors_wire import error_from_rpc
from twinlog.service.peers import open_channel
from twinlog.testing.brokers import eventually


async def test_a_revoked_token_is_refused_by_the_next_call(tmp_path: Path) -> None:
    async with (
        opened(tmp_path, tokens=True) as port,
        open_channel(port.endpoint, port.client(token="viewer-token")) as channel,
    ):
        await look(channel)
        (tmp_path / "tokens").write_text("# nobody\n")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await look(channel)
        assert error_from_rpc(refused.value).reason == "TOKEN_UNKNOWN"


async def test_a_renewed_token_is_sent_by_the_next_call(tmp_path: Path) -> None:
    async with opened(tmp_path, tokens=True) as port:
        security = port.client(token="an-old-token")
        async with open_channel(port.endpoint, security) as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await look(channel)
            put(security.token_file, b"viewer-token\n")
            await look(channel)


async def test_certificate_files_are_replaced_under_calls_and_no_caller_is_refused(tmp_path: Path) -> None:
    """A call that comes as the earlier server stops may be cancelled before it begins; it is made again."""
    async with opened(tmp_path, certificates=True) as port:
        files = person(port, "viewer")
        assert port.files is not None
        calls = 0
        done = asyncio.Event()

        async def keep_calling(channel: grpc.aio.Channel) -> None:
            nonlocal calls
            while not done.is_set():
                try:
                    await look(channel)
                except grpc.aio.AioRpcError as error:
                    if error.code() is not grpc.StatusCode.CANCELLED:
                        raise
                else:
                    calls += 1

        async def called(times: int) -> None:
            goal = calls + times

            async def enough() -> bool:
                return calls >= goal

            await eventually(enough)

        async with open_channel(port.endpoint, port.client(files)) as channel, asyncio.TaskGroup() as group:
            group.create_task(keep_calling(channel), name="calls")
            for hosts in (("127.0.0.1", "one.example"), ("127.0.0.1", "two.example")):
                await called(5)
                renewed = port.authority.sign("server", *hosts)
                put(port.files.certificate, renewed.chain)
                await called(5)  # a new certificate beside its old key
                put(port.files.key, renewed.key)
                await eventually(partial(port.shows, renewed.chain))
                mine = port.authority.sign("viewer", *hosts)
                put(files.certificate, mine.chain)
                await called(5)
                put(files.key, mine.key)
                await called(5)
                async with open_channel(port.endpoint, port.client(files)) as another:
                    await look(another)
            done.set()


async def test_a_stream_outlives_the_certificate_under_which_it_began(tmp_path: Path) -> None:
    async with opened(tmp_path) as port:
        assert port.files is not None
        async with open_channel(port.endpoint, port.client()) as channel:
            watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=""))
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
            renewed = port.authority.sign("server", "127.0.0.1")
            put(port.files.key, renewed.key)
            put(port.files.certificate, renewed.chain)
            await eventually(partial(port.shows, renewed.chain))
            await look(channel)
            stop = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                group.create_task(port.server.watch_readiness(stop), name="health")
                assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
                stop.set()


async def test_a_port_that_may_renew_its_certificate_is_not_shared_by_two_servers(tmp_path: Path) -> None:
    async with opened(tmp_path) as port:
        with pytest.raises(ConfigError) as refused:
            async with opened(tmp_path, number=port.server.port):
                pass
        assert refused.value.reason == "ADDRESS_IN_USE"


async def test_calls_of_a_rotated_client_show_the_new_certificate(tmp_path: Path) -> None:
    async with opened(tmp_path, certificates=True) as port:
        files = person(port, "viewer")
        async with open_channel(port.endpoint, port.client(files)) as channel:
            await look(channel)
            mine = port.authority.sign("admin")
            put(files.key, mine.key)
            put(files.certificate, mine.chain)
            await look(channel)
        assert [name for _, name in port.seen] == ["CN=viewer", "CN=admin"]

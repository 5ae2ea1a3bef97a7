"""A call that a process on standby refuses is made at the owner that it names: once, and with what was shown
to the first one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from contract.access.access_rig import TIMEOUT_SECONDS, Port, look, opened, person
from twinlog.api.checkpoint.v1 import checkpoint_service_pb2, checkpoint_service_pb2_grpc
from twinlog.config.security import PeerSecurity
from twinlog.errors import StateError, TwinlogError
from twinlog.local.certificates import Authority
from twinlog.service.errors_wire import error_from_rpc
from twinlog.service.peers import credentials_for, open_to_owner, owner_of


def served_by(address: str, reason: str = "OWNED_ELSEWHERE") -> StateError:
    return StateError("another process has it", reason=reason, metadata={"owner_address": address})


@asynccontextmanager
async def two(directory: Path, *, tls: bool = True, trusted: bool = True) -> AsyncIterator[tuple[Port, Port]]:
    """A process on standby and the owner that it names."""
    authority = Authority()
    (directory / "standby").mkdir()
    (directory / "owner").mkdir()
    async with (
        opened(directory / "standby", tls=tls, tokens=True, authority=authority) as standby,
        opened(directory / "owner", tls=tls, tokens=True, authority=authority if trusted else None) as owner,
    ):
        standby.refusals.append(served_by(owner.endpoint))
        yield standby, owner


def channel_to(port: Port, security: PeerSecurity | None = None) -> grpc.aio.Channel:
    shown = security or port.client(token="viewer-token")
    return open_to_owner(port.endpoint, lambda address: credentials_for(address, shown))


async def watched(channel: grpc.aio.Channel) -> int:
    """How many answers a stream gave."""
    stub = checkpoint_service_pb2_grpc.CheckpointServiceStub(channel)
    request = checkpoint_service_pb2.WatchMoveRequest()
    return len([each async for each in stub.WatchMove(request, timeout=TIMEOUT_SECONDS)])


async def refusal_of(port: Port, security: PeerSecurity | None = None) -> TwinlogError:
    async with channel_to(port, security) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await look(channel)
    return error_from_rpc(failed.value, peer="the port")


async def test_a_call_that_a_standby_refuses_is_answered_by_the_owner(tmp_path: Path) -> None:
    async with two(tmp_path) as (standby, owner), channel_to(standby) as channel:
        await look(channel)
        assert await watched(channel) == 1
        calls = [("GetTopology", "file:viewer"), ("WatchMove", "file:viewer")]
        assert standby.seen == owner.seen == calls, "as the same caller, once"


async def test_it_is_the_same_caller_by_certificate(tmp_path: Path) -> None:
    authority = Authority()
    (tmp_path / "owner").mkdir()
    async with (
        opened(tmp_path, certificates=True, authority=authority) as standby,
        opened(tmp_path / "owner", certificates=True, authority=authority) as owner,
    ):
        standby.refusals.append(served_by(owner.endpoint))
        async with channel_to(standby, standby.client(person(standby, "viewer"))) as channel:
            await look(channel)
        assert owner.seen == [("GetTopology", "CN=viewer")]


async def test_a_call_is_followed_once(tmp_path: Path) -> None:
    async with two(tmp_path) as (standby, owner):
        owner.refusals.append(served_by(standby.endpoint))
        assert (await refusal_of(standby)).reason == "OWNED_ELSEWHERE"
        assert (len(standby.seen), len(owner.seen)) == (1, 1)


async def test_what_the_owner_refuses_is_told(tmp_path: Path) -> None:
    async with two(tmp_path) as (standby, owner):
        owner.refusals.append(StateError("a move runs", reason="MOVE_IN_PROGRESS"))
        assert (await refusal_of(standby)).reason == "MOVE_IN_PROGRESS"
        async with channel_to(standby) as channel:
            with pytest.raises(grpc.aio.AioRpcError, match="a move runs"):
                await watched(channel)


async def test_an_owner_that_nobody_has_signed_gets_neither_call_nor_token(tmp_path: Path) -> None:
    async with two(tmp_path, trusted=False) as (standby, owner):
        error = await refusal_of(standby)
        assert error.reason == "OWNED_ELSEWHERE", "the standby's words help more than a failed handshake"
        assert owner.endpoint in error.metadata["owner_address"]
        async with channel_to(standby) as channel:
            with pytest.raises(grpc.aio.AioRpcError, match="another process has it"):
                await watched(channel)
        assert not owner.seen


@pytest.mark.parametrize("insecure", [False, True])
async def test_without_tls_a_token_follows_nobody(tmp_path: Path, insecure: bool) -> None:
    async with two(tmp_path, tls=False) as (standby, owner):
        security = replace(standby.client(token="viewer-token"), insecure=insecure)
        assert (await refusal_of(standby, security)).reason == "OWNED_ELSEWHERE"
        assert not owner.seen


@pytest.mark.parametrize(
    ("asked", "named", "reason"),
    [
        ("box:17404", "127.0.0.1:17404", "OWNED_ELSEWHERE"),
        ("box:17404", "box:17404", "OWNED_ELSEWHERE"),
        ("box:17404", "", "OWNED_ELSEWHERE"),
        ("box:17404", "nowhere", "OWNED_ELSEWHERE"),
        ("box:17404", "other:17404", "TWIN_DEPLOYMENT"),
    ],
)
async def test_nobody_else_is_followed(tmp_path: Path, asked: str, named: str, reason: str) -> None:
    async with opened(tmp_path, tls=False) as standby:
        standby.refusals.append(served_by(named, reason))
        async with channel_to(standby, PeerSecurity()) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await look(channel)
        assert owner_of(failed.value, asked) is None

"""Who is not what it says, or speaks another way, gets nowhere; the words name why."""

import asyncio
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from contract.access.access_rig import got, look, opened, person, put
from twinlog.config.security import PeerSecurity
from twinlog.errors import ConfigError
from twinlog.local.certificates import Authority
from twinlog.service.errors_wire import error_from_rpc
from twinlog.service.peers import open_channel


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("expired", "has expired"),
        ("other CA", "does not come from a CA"),
        ("other host", "is for another host"),
    ],
)
async def test_a_server_that_is_not_what_it_says_is_named(tmp_path: Path, case: str, words: str) -> None:
    async with opened(tmp_path) as port:
        assert port.files is not None
        security = port.client()
        if case == "other CA":
            put(security.ca, Authority().pem)
        elif case == "other host":
            security = replace(security, server_name="elsewhere.example")
        else:
            # A service whose certificate expires while it runs: its files were good when it started.
            late = port.authority.files(tmp_path, "late", "127.0.0.1", days=-1)
            server = grpc.aio.server()
            pair = (got(late.key), got(late.certificate))
            number = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
            await server.start()
            async with open_channel(f"127.0.0.1:{number}", security) as channel:
                with pytest.raises(grpc.aio.AioRpcError) as failed:
                    await look(channel)
            await server.stop(0)
            error = error_from_rpc(failed.value, peer="the port")
        if case != "expired":
            error = await port.failure(security)
        assert error.reason == "TLS_FAILED"
        assert words in str(error)


@pytest.mark.parametrize("case", ["none", "expired", "other CA"])
async def test_a_client_whose_certificate_is_not_good_gets_nowhere(tmp_path: Path, case: str) -> None:
    """And the port serves others as before."""
    async with opened(tmp_path, certificates=True) as port:
        good = port.client(person(port, "viewer"))
        bad = port.client(Authority().files(tmp_path, "admin") if case == "other CA" else None)
        if case == "expired":
            files = port.authority.files(tmp_path, "expired", days=-1)
            with pytest.raises(ConfigError, match="expired at"):
                open_channel(port.endpoint, port.client(files))
        error = await port.failure(bad)
        assert error.reason in ("PEER_UNAVAILABLE", "TLS_FAILED")
        assert "TLS" in str(error)
        assert not port.seen
        async with open_channel(port.endpoint, good) as channel:
            await look(channel)


async def test_tls_and_plain_text_do_not_meet(tmp_path: Path) -> None:
    async with opened(tmp_path) as port:
        assert "TLS" in str(await port.failure(PeerSecurity()))
    async with opened(tmp_path, tls=False) as port:
        error = await port.failure(replace(port.client(), tls=True))
        assert error.reason == "TLS_FAILED"
        assert "does not speak TLS" in str(error)


async def test_a_token_is_not_sent_in_clear_to_another_machine(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret-token\n")
    with pytest.raises(ConfigError) as refused:
        open_channel("source.example:17401", PeerSecurity(token_file=str(file)))
    assert refused.value.reason == "TOKEN_NEEDS_TLS"
    assert "secret-token" not in str(refused.value)


@pytest.mark.parametrize(
    ("words", "doubted"),
    [
        ("failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Socket closed", True),
        ("failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Broken pipe", True),
        ("Connection reset by peer", True),
        ("Stream removed (Socket closed)", False),
    ],
)
def test_a_connection_that_ends_during_its_setup_may_be_a_matter_of_tls(words: str, doubted: bool) -> None:
    failure = grpc.aio.AioRpcError(
        grpc.StatusCode.UNAVAILABLE,
        initial_metadata=grpc.aio.Metadata(),
        trailing_metadata=grpc.aio.Metadata(),
        details=words,
    )
    assert ("if it speaks TLS" in str(error_from_rpc(failure, peer="the port"))) is doubted


async def test_many_handshakes_at_once_are_answered(tmp_path: Path) -> None:
    """With credentials that ask Python at each handshake the process stood still within seconds."""
    async with opened(tmp_path, certificates=True) as port:
        security = port.client(person(port, "viewer"))

        async def call_once() -> None:
            async with open_channel(port.endpoint, security) as channel:
                await look(channel)

        for _ in range(20):
            async with asyncio.TaskGroup() as group:
                for number in range(10):
                    group.create_task(call_once(), name=f"caller {number}")

"""A service whose port is secured, as a process: what it refuses to start with, and what it lives through."""

import asyncio
import hashlib
import ssl
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from contract.access.access_rig import put
from integration.service.test_service_runtime_process import _PROPERTIES, _service
from twinlog.config.security import PeerSecurity, TlsFiles
from twinlog.local.certificates import Authority
from twinlog.service.peers import open_channel
from twinlog.testing.brokers import eventually

TIMEOUT_SECONDS = 30.0


def tls(files: TlsFiles) -> str:
    return (
        f"twinlog.tls.certificate.file = {files.certificate}\ntwinlog.tls.key.file = {files.key}\n"
        f"twinlog.tls.ca.file = {files.ca}\n"
    )


def caller(files: TlsFiles) -> PeerSecurity:
    return PeerSecurity(tls=True, ca=files.ca, certificate=files.certificate, key=files.key)


async def serves(endpoint: str, security: PeerSecurity) -> bool:
    async with open_channel(endpoint, security) as channel:
        try:
            await health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(service="liveness"), timeout=TIMEOUT_SECONDS
            )
        except grpc.aio.AioRpcError:
            return False
    return True


async def refused(directory: Path, properties: str, *arguments: str) -> str:
    """What a service says that does not start; it exits with 2."""
    async with _service(directory, properties=_PROPERTIES + properties, arguments=arguments) as service:
        assert await service.exit_code() == 2
        return service.log()


async def test_a_port_beyond_loopback_does_not_open_without_tls_and_authentication(tmp_path: Path) -> None:
    log = await refused(tmp_path, "", "--listen", "0.0.0.0:0")
    assert "twinlog-heartbeat: twinlog.heartbeat.listen: 0.0.0.0:0 can be reached from other machines" in log
    assert "twinlog.heartbeat.insecure = true" in log


async def test_a_renewed_certificate_is_shown_without_a_restart(tmp_path: Path) -> None:
    authority = Authority()
    files = authority.files(tmp_path, "own", "127.0.0.1")
    async with _service(tmp_path, properties=_PROPERTIES + tls(files)) as service:
        port = await service.port()
        mine = caller(authority.files(tmp_path, "me"))
        renewed = authority.sign("own", "127.0.0.1")
        put(files.certificate, renewed.chain)
        put(files.key, renewed.key)

        async def shown() -> bool:
            found = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))
            return found.strip() in renewed.chain.decode()

        await eventually(shown)
        assert await serves(f"127.0.0.1:{port}", mine)
        assert "certificate_shown" in service.log()
        assert "PRIVATE" not in service.log()


async def test_a_revoked_token_is_refused_without_a_restart(tmp_path: Path) -> None:
    file, token = tmp_path / "tokens", tmp_path / "token"
    token.write_text("a-planted-token\n")
    line = f"ci viewer {hashlib.sha256(b'a-planted-token').hexdigest()}\n"
    file.write_text(line)
    async with _service(tmp_path, properties=_PROPERTIES + f"twinlog.auth.tokens.file = {file}\n") as service:
        endpoint = f"127.0.0.1:{await service.port()}"
        security = PeerSecurity(token_file=str(token))
        assert await _reflects(endpoint, security) == "OK"
        file.write_text("# nobody\n")
        assert await _reflects(endpoint, security) == "UNAUTHENTICATED"
        file.write_text(line)
        assert await _reflects(endpoint, security) == "OK"
        assert await serves(endpoint, PeerSecurity()), "health is open to everybody"
        assert "a-planted-token" not in service.log()


async def _reflects(endpoint: str, security: PeerSecurity) -> str:
    """The code of a call that needs the role of a viewer."""
    async with open_channel(endpoint, security) as channel:
        call: Any = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
        stream = call(timeout=TIMEOUT_SECONDS)
        try:
            await stream.done_writing()
            await stream.read()
            code: grpc.StatusCode = await stream.code()
            return code.name
        except grpc.aio.AioRpcError as failure:
            return failure.code().name

"""What the health check of a container says of a service that runs, whatever became of its files."""

import asyncio
import sys
from pathlib import Path

import pytest

from contract.access.access_rig import TIMEOUT_SECONDS, opened


async def asked(*arguments: str) -> tuple[int, str]:
    """Exit code and stderr."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "twinlog.service.probe", *arguments, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(TIMEOUT_SECONDS):
        _, errors = await process.communicate()
    return process.returncode or 0, errors.decode()


@pytest.mark.parametrize("content", ["clusters = A\ntwinlog.source.pace = fast\n", "\\u12", ""])
async def test_a_file_that_was_edited_badly_does_not_make_a_service_unhealthy(
    tmp_path: Path, content: str
) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(content)
    async with opened(tmp_path, tls=False) as port:
        code, errors = await asked(port.endpoint, "--service", "liveness", "--config", str(file))
        assert code == 0, errors
        assert str(file) in errors


async def test_services_that_share_a_port_are_told_apart_by_their_host_or_name(tmp_path: Path) -> None:
    async with opened(tmp_path) as port:
        number = port.endpoint.rpartition(":")[2]
        assert port.files is not None
        file = tmp_path / "mm2.properties"
        file.write_text(
            "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n"
            f"twinlog.source.listen = 127.0.0.1:{number}\ntwinlog.checkpoint.listen = 127.0.0.2:{number}\n"
            f"twinlog.source.tls.certificate.file = {port.files.certificate}\n"
            f"twinlog.source.tls.key.file = {port.files.key}\ntwinlog.source.tls.ca.file = {port.files.ca}\n"
            "twinlog.source.tls.client.auth = none\n"
        )
        for endpoint in (f"127.0.0.1:{number}", f"source=127.0.0.1:{number}"):
            code, errors = await asked(endpoint, "--service", "liveness", "--config", str(file))
            assert code == 0, errors

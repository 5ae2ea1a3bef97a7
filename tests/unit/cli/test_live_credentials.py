"""Live views open channels again and again, while somebody rotates the certificates."""

from pathlib import Path

import pytest

from twinlog.cli.common.location import channels
from twinlog.config.security import TlsFiles
from twinlog.errors import ConfigError
from twinlog.local.certificates import Authority

_PROPERTIES = """
clusters = A, B
A.bootstrap.servers = 127.0.0.1:1
B.bootstrap.servers = 127.0.0.1:1
A->B.enabled = true
twinlog.client.tls.certificate.file = {certificate}
twinlog.client.tls.key.file = {key}
twinlog.client.tls.ca.file = {ca}
"""


def properties(directory: Path, files: TlsFiles) -> Path:
    file = directory / "mm2.properties"
    file.write_text(_PROPERTIES.format(certificate=files.certificate, key=files.key, ca=files.ca))
    return file


def half_written(files: TlsFiles) -> None:
    for name in (files.certificate, files.key, files.ca):
        Path(name).write_bytes(b"-----BEGIN ")


async def test_certificates_that_are_half_written_under_a_live_view_leave_it_the_earlier_ones(
    tmp_path: Path,
) -> None:
    files = Authority().files(tmp_path, "operator")
    config = properties(tmp_path, files)
    open_to = channels(config)
    async with open_to("source", "127.0.0.1:1"):
        pass
    half_written(files)
    async with open_to("source", "127.0.0.1:1"):
        pass
    with pytest.raises(ConfigError) as refused:
        channels(config)("source", "127.0.0.1:1")
    assert refused.value.reason == "CERTIFICATE_UNUSABLE"

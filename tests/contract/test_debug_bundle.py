"""`twinlog debug bundle`: whole where all answer, useful where nothing does, and without a secret."""

import asyncio
import json
import os
import sys
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from contract.ui_services import UiRig, serving
from twinlog.cli.debug.gather import MOST_ENTRY_BYTES

PLANTED = [
    *("hunter2-password", "jaas-s3cret", "truststore-pass", "url-p4ss", "plugin-value-x9", "spark-s3-key"),
    *("from-a-file-77", "env-token-55", "otel-h3ader", "peer-token-in-a-file", "key-in-a-file-0123456789"),
]
AWAY = "127.0.0.1:1"


def properties(directory: Path, **more: str) -> Path:
    (directory / "secret.properties").write_text("password=from-a-file-77\n")
    (directory / "token").write_text("peer-token-in-a-file\n")
    (directory / "key.pem").write_text("-----BEGIN KEY-----\nkey-in-a-file-0123456789\n-----END KEY-----\n")
    keys = {
        "clusters": "A, B",
        "A.bootstrap.servers": AWAY,
        "B.bootstrap.servers": AWAY,
        "A->B.enabled": "true",
        "A.sasl.jaas.config": 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u"'
        ' password="jaas-s3cret";',
        "A.sasl.mechanism": "PLAIN",
        "A.security.protocol": "SASL_PLAINTEXT",
        "B.ssl.truststore.password": "truststore-pass",
        "B.ssl.key.password": "${file:" + str(directory / "secret.properties") + ":password}",
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "twinlog.spark.conf.spark.hadoop.fs.s3a.secret.key": "spark-s3-key",
        "A.interceptor.some.value": "plugin-value-x9",
        "A.proxy": "http://user:url-p4ss@proxy:3128",
        "other.password": "hunter2-password",
        "twinlog.client.token.file": str(directory / "token"),
        "A.sasl.oauthbearer.assertion.private.key.file": str(directory / "key.pem"),
        **more,
    }
    file = directory / "mm2.properties"
    file.write_text("".join(f"{key} = {value}\n" for key, value in keys.items()), encoding="latin-1")
    return file


async def bundle(directory: Path, file: Path, *arguments: str) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Its entries, and its summary."""
    target = directory / "bundle.tar.gz"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "twinlog", "debug", "bundle"),
        *("--config", str(file), "--file", str(target), *arguments),
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(directory),
            "MY_AUTH_TOKEN": "env-token-55",
            "OTEL_EXPORTER_OTLP_HEADERS": "x-team=otel-h3ader",
            # A proxy that is away: services are asked themselves.
            "http_proxy": "http://127.0.0.1:1",
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    told, complaints = await process.communicate()
    assert process.returncode == 0, complaints.decode()
    assert b"wrote" in told
    assert target.stat().st_mode & 0o077 == 0
    with tarfile.open(target) as archive:
        entries = {
            member.name.removeprefix("twinlog-debug/"): stream.read()
            for member in archive
            if (stream := archive.extractfile(member)) is not None
        }
    found = {
        (secret, name) for secret in PLANTED for name, text in entries.items() if secret.encode() in text
    }
    assert found == set()
    return entries, json.loads(entries["summary.json"])


@contextmanager
def metrics_page(text: str) -> Iterator[str]:
    """HOST:PORT of something that serves metrics."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_states_metrics_and_logs_are_in_it_and_no_secret_is(tmp_path: Path) -> None:
    log = tmp_path / "twinlog.log"
    log.write_text(
        "an old line\n" * 200_000
        + "".join(f'{{"event":"said","value":"it is {secret} here"}}\n' for secret in PLANTED)
        + "the last line\n"
    )
    with metrics_page('# of source\ntwinlog_up 1\nlabel{x="hunter2-password"} 1\n') as at:
        file = properties(tmp_path, **{"twinlog.source.metrics.listen": at})
        twice = ("--log", str(log), "--log", str(log))
        async with serving(UiRig(lag=7, partitions=30)) as services:
            entries, summary = await bundle(tmp_path, file, *twice, *services.arguments())
    assert [name for name in entries if name.startswith("logs/")] == ["logs/0-twinlog.log"]
    assert b"twinlog_up 1" in entries["metrics/source.txt"]
    tail = entries["logs/0-twinlog.log"]
    assert tail.endswith(b"the last line\n")
    assert tail.startswith(b"an old line\n")
    assert len(tail) <= MOST_ENTRY_BYTES
    status = json.loads(entries["status.json"])
    assert {each["name"]: each["health"] for each in status["services"]}["source"] == "SERVING"
    assert len(json.loads(entries["partitions/A-to-B.json"])) == 30
    shown = entries["configuration.properties"].decode()
    assert "A.bootstrap.servers = 127.0.0.1:1" in shown
    assert "A.sasl.jaas.config = ***" in shown
    assert "A.interceptor.some.value = ***" in shown
    assert summary["packages"]["aiokafka"]
    missing = {each["what"]: each["reason"] for each in summary["missing"]}
    assert missing["internal-topics/A-to-B.json: cluster A"] in ("KAFKA_UNAVAILABLE", "KAFKA_TIMEOUT")


async def test_it_is_made_where_nothing_answers_and_says_what_is_missing(tmp_path: Path) -> None:
    file = properties(tmp_path, **{f"twinlog.{name}.endpoint": AWAY for name in ("source", "checkpoint")})
    entries, summary = await bundle(tmp_path, file)
    missing = {each["what"]: each for each in summary["missing"]}
    assert missing["service source"]["reason"] == "PEER_UNAVAILABLE"
    assert "partitions/A-to-B.json" in missing
    assert "--log" in missing["logs"]["message"]
    assert "configuration.properties" in entries


async def test_a_file_that_does_not_load_does_not_prevent_a_bundle(tmp_path: Path) -> None:
    file = properties(tmp_path, **{"twinlog.epoch.seconds": "soon"})
    _, summary = await bundle(tmp_path, file)
    missing = {each["what"]: each["message"] for each in summary["missing"]}
    assert "twinlog.epoch.seconds" in missing["configuration"]


async def test_logs_that_cannot_be_read_are_named_and_keep_nobody_waiting(tmp_path: Path) -> None:
    pipe, away = tmp_path / "pipe", tmp_path / "away.log"
    os.mkfifo(pipe)
    given = [word for each in (pipe, away, tmp_path) for word in ("--log", str(each))]
    _, summary = await bundle(tmp_path, properties(tmp_path), *given)
    told = [each["message"] for each in summary["missing"] if each["what"].startswith("logs/")]
    assert len(told) == 3
    assert all(str(each) in message for each, message in zip((pipe, away, tmp_path), told, strict=True))


async def test_references_are_blanked_also_of_a_file_that_does_not_load(tmp_path: Path) -> None:
    log = tmp_path / "twinlog.log"
    log.write_text("the key opens with from-a-file-77\n")
    file = properties(tmp_path, **{"twinlog.epoch.seconds": "soon"})
    entries, _ = await bundle(tmp_path, file, "--log", str(log))
    assert entries["logs/0-twinlog.log"] == b"the key opens with ***\n"


async def test_a_bundle_never_replaces_what_is_no_bundle(tmp_path: Path) -> None:
    file = properties(tmp_path)
    before = file.read_bytes()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "twinlog", "debug", "bundle", "--config", str(file), "--file", str(file)),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, told = await process.communicate()
    assert process.returncode == 2
    assert b"is not replaced" in told
    assert file.read_bytes() == before

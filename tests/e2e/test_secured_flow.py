"""README: secured clusters are configured as for MM2, services know who calls them, and secrets stay out of
logs and output."""

import asyncio
import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil

from e2e.conftest import FAST_AND_SMALL
from integration.in_process import twinlog
from twinlog.batches import Codec, NewRecord
from twinlog.cli.common.location import VARIABLES
from twinlog.clock import SystemClock
from twinlog.config import Service
from twinlog.config.security import TlsFiles
from twinlog.demo.comparison import compare
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import NewTopic
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.certificates import Authority
from twinlog.local.port_lease import PortLease
from twinlog.local.spec import SaslMechanism
from twinlog.local.twinlog_run import TwinlogRun
from twinlog.testing.brokers import eventually, retry_admin, unique_name, write_batches

SPARK_SECRET = "planted-key-of-a-bucket"


async def _command(
    run: TwinlogRun, *arguments: str, as_whom: TlsFiles | None = None
) -> subprocess.CompletedProcess[str]:
    """A command line with the file of the run; by default it is its operator's."""
    words = (*arguments, "--config", str(run.file))
    if as_whom is None:
        return await twinlog(*words)
    environment = dict(os.environ) | {
        VARIABLES["certificate"]: as_whom.certificate,
        VARIABLES["key"]: as_whom.key,
        VARIABLES["ca"]: as_whom.ca,
    }
    command = [sys.executable, "-m", "twinlog", *words]
    return await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=120, env=environment
    )


async def _all_that_is_told(run: TwinlogRun, pages: Sequence[int]) -> dict[str, bytes]:
    """By place, what others of the machine and a monitoring system get to see of a run: command lines,
    Spark's files, metrics."""
    processes = [psutil.Process(run.process.pid)]
    processes += processes[0].children(recursive=True)
    lines = {f"command line {process.pid}": " ".join(_words(process)) for process in processes}
    places = set(re.findall(r"-Djava\.io\.tmpdir=([^\s\"]+)", " ".join(lines.values())))
    assert places, "Spark runs"
    files = {name: text for place in places for name, text in _files_below(Path(place)).items()}
    assert files
    shown = [await asyncio.to_thread(_page, port) for port in pages]
    assert all(b"twinlog_" in page for page in shown)
    return {
        **{place: line.encode() for place, line in lines.items()},
        **files,
        **{f"metrics {port}": page for port, page in zip(pages, shown, strict=True)},
    }


def _words(process: psutil.Process) -> list[str]:
    with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        return process.cmdline()
    return []


def _files_below(place: Path) -> dict[str, bytes]:
    return {f"file {path}": path.read_bytes() for path in place.rglob("*") if path.is_file()}


def _page(port: int) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        return bytes(answer.read())


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


async def test_a_flow_from_tls_and_scram_to_sasl_plain(
    tls_cluster: BlockingCluster, sasl_cluster: BlockingCluster, tmp_path: Path
) -> None:
    a, b = tls_cluster, sasl_cluster
    passwords = [cluster.spec.security.super_password for cluster in (a, b)]
    pages = PortLease(len(Service))
    clients = {
        "A": a.client_properties(mechanism=SaslMechanism.SCRAM_SHA_512),
        "B": b.client_properties(mechanism=SaslMechanism.PLAIN),
    }
    settings = "".join(
        f"{alias}.{key} = {_escaped(value)}\n"
        for alias, properties in clients.items()
        for key, value in properties.items()
    )
    topic = unique_name("secured")
    async with open_cluster("A", clients["A"]) as source, open_cluster("B", clients["B"]) as target:
        new = NewTopic(name=topic, partition_count=2, replication_factor=1)
        await retry_admin(lambda: source.create_topics([new]))
        records = [NewRecord(b"k%d" % i, b"%d" % i, SystemClock().now_ms()) for i in range(100)]
        await write_batches(a, topic, [(0, Codec.ZSTD, records), (1, Codec.NONE, records)])
        authority = Authority()
        own = authority.files(tmp_path, "twinlog", "127.0.0.1", "services.example")
        own_key = await asyncio.to_thread(Path(own.key).read_text)
        text = (
            f"clusters = A, B\n{settings}A->B.enabled = true\ntopics = {topic}\n{FAST_AND_SMALL}"
            f"twinlog.tls.certificate.file = {own.certificate}\ntwinlog.tls.key.file = {own.key}\n"
            f"twinlog.tls.ca.file = {own.ca}\ntwinlog.auth.viewers = cn:viewer\n"
            "twinlog.auth.admins = cn:admin\n"
            # Open to other machines: without the lines above it would not start.
            "twinlog.heartbeat.listen = 0.0.0.0:0\n"
            f"twinlog.spark.conf.spark.hadoop.fs.s3a.secret.key = {SPARK_SECRET}\n"
            + "".join(
                f"twinlog.{service}.metrics.listen = 127.0.0.1:{port}\n"
                for service, port in zip(Service, pages.ports, strict=True)
            )
        )
        async with TwinlogRun(text, tmp_path) as run:

            async def all_there() -> bool:
                if f"A.{topic}" not in await target.list_topics():
                    return False
                result = await compare(source, topic, target, f"A.{topic}", partition_count=2)
                return result.target_records == 200 and result.identical

            await eventually(all_there)
            status = await _command(run, "status", "-o", "json")
            told = await _all_that_is_told(run, pages.ports)
            refused = await _command(run, "pause", "A->B", as_whom=authority.files(tmp_path, "viewer"))
            paused = await _command(run, "pause", "A->B", as_whom=authority.files(tmp_path, "admin"))
            stranger = await _command(
                run, "pause", "A->B", as_whom=replace(Authority().files(tmp_path, "admin2"), ca=own.ca)
            )
        log = run.log.read_text()
    said = log + "".join(each.stdout + each.stderr for each in (status, refused, paused, stranger))
    assert status.returncode == 0, status
    assert {row["security"] for row in json.loads(status.stdout)["services"]} == {"tls,authenticated"}
    assert refused.returncode == 1
    assert "CN=viewer has the role viewer" in refused.stderr
    assert paused.returncode == 0, paused
    assert stranger.returncode == 1, stranger
    audit = [line for line in log.splitlines() if '"event": "audit"' in line or '"event":"audit"' in line]
    callers = {(line["caller"], line["outcome"]) for line in map(json.loads, audit)}
    assert callers == {("CN=viewer", "NOT_AUTHORIZED"), ("CN=admin", "OK")}
    _, key, *_ = own_key.splitlines()
    told["output"] = said.encode()
    for secret in (*passwords, SPARK_SECRET, key, "PRIVATE KEY"):
        assert [place for place, text in told.items() if secret.encode() in text] == []
    pages.release()

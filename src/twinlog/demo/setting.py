"""The demo's stage: two clusters, the properties file, and `twinlog run` on it as a process of its own."""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from twinlog.errors import StateError
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.port_lease import PortLease
from twinlog.local.process import GuardedProcess
from twinlog.service.runtime import wait_or_stop

SERVICES = ("source", "checkpoint", "heartbeat", "configsync")
READY_TIMEOUT_SECONDS = 90.0
STOP_GRACE_SECONDS = 40.0
POLL_SECONDS = 0.2

PROPERTIES = """\
# The demo's mm2.properties: an ordinary MirrorMaker 2 file.
clusters = A, B
A.bootstrap.servers = {a}
B.bootstrap.servers = {b}

A->B.enabled = true
A->B.topics = orders
B->A.enabled = false

replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
config.storage.replication.factor = 1

# Often, so that a minute shows everything.
refresh.topics.interval.seconds = 1
refresh.groups.interval.seconds = 1
emit.checkpoints.interval.seconds = 1
sync.group.offsets.enabled = true
sync.group.offsets.interval.seconds = 1
twinlog.epoch.seconds = 10

# Where the services listen: free ports, so that the demo runs beside anything.
{listen}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """`twinlog run` at work."""

    process: GuardedProcess
    properties: Path
    log: Path
    endpoints: Mapping[str, str]


@asynccontextmanager
async def twinlog_run(a: BlockingCluster, b: BlockingCluster, directory: Path) -> AsyncIterator[Running]:
    """Run the four services until the end of the context; yields once they serve.

    Raises StateError with the end of their log when they are not ready in time.
    """
    lease = PortLease(len(SERVICES))
    endpoints = {service: f"127.0.0.1:{port}" for service, port in zip(SERVICES, lease.ports, strict=True)}
    listen = "\n".join(f"twinlog.{service}.listen = {at}" for service, at in endpoints.items())
    properties = directory / "mm2.properties"
    properties.write_text(
        PROPERTIES.format(a=a.bootstrap_servers, b=b.bootstrap_servers, listen=listen), encoding="latin-1"
    )
    log = directory / "twinlog.log"
    process = GuardedProcess(
        [sys.executable, "-m", "twinlog", "run", properties, "--log-format", "json"], output=log
    )
    running = Running(process=process, properties=properties, log=log, endpoints=endpoints)
    try:
        await _until_ready(running)
        yield running
    finally:
        await asyncio.to_thread(process.stop, STOP_GRACE_SECONDS)
        lease.release()


async def _until_ready(running: Running) -> None:
    never = asyncio.Event()
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + READY_TIMEOUT_SECONDS
    while loop.time() < give_up_at:
        text = running.log.read_text(errors="replace") if running.log.exists() else ""
        if any(line.startswith("ready") for line in text.splitlines()):
            return
        if not running.process.running:
            break
        await wait_or_stop(never, POLL_SECONDS)
    tail = "\n".join(running.log.read_text(errors="replace").splitlines()[-15:])
    raise StateError(
        f"the services were not ready within {READY_TIMEOUT_SECONDS:g} s:\n{tail}", reason="NOT_READY"
    )

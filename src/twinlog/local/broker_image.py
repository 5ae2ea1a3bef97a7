"""Prepared once per Kafka version and Java, so that each broker starts in a second instead of three:

- the checkpoint with which a formatted directory begins (saves a JVM per broker);
- a class archive (AppCDS): the JVM maps the broker's classes instead of parsing and verifying them.

Both come from one short trial run of a broker, and are stored next to the jars. A JVM that cannot use the
archive ignores it.
"""

import fcntl
import hashlib
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from twinlog.local.broker import Broker, broker_command
from twinlog.local.broker_properties import NodePlace, server_properties
from twinlog.local.download.artifacts import Jars, broker_artifacts, ensure_jars
from twinlog.local.node_storage import CHECKPOINT, make_checkpoint, new_kafka_id, write_formatted
from twinlog.local.port_lease import PortLease
from twinlog.local.processes.process import ProcessError
from twinlog.local.spec import OPEN, ClusterSpec, KafkaVersion
from twinlog.machine.java import Java
from twinlog.machine.paths import WorkDirectory
from twinlog.properties_text import render_properties

_TRIAL_SECONDS = 120.0
_POLL_SECONDS = 0.05
_ARCHIVE = "classes.jsa"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerImage:
    """The files from which a broker of one version starts."""

    java: Java
    class_path: str
    checkpoint: bytes
    """For brokers without SCRAM users. Empty with ZooKeeper: brokers format their directories themselves."""
    jvm_options: tuple[str, ...]


def ensure_image(version: KafkaVersion, java: Java) -> BrokerImage:
    """Download and prepare what is missing: about a minute the first time, later at once.

    Raises FetchError, ProcessError when the trial broker does not start on this Java.
    """
    jars = ensure_jars(broker_artifacts(version), java=java)
    if version.has_zookeeper:
        return BrokerImage(java=java, class_path=jars.class_path, checkpoint=b"", jvm_options=())
    directory = jars.directory / f"image-{_fingerprint(java)}"
    if not directory.is_dir():
        with (jars.directory / "image.lock").open("w") as lock:
            # One process creates it and others wait; if that one dies the lock is free, and the next one
            # creates it.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not directory.is_dir():
                _prepare(version, java, jars, directory)
    archive = directory / _ARCHIVE
    return BrokerImage(
        java=java,
        class_path=jars.class_path,
        checkpoint=(directory / CHECKPOINT).read_bytes(),
        jvm_options=(f"-XX:SharedArchiveFile={archive}",) if archive.is_file() else (),
    )


def _fingerprint(java: Java) -> str:
    return f"java{java.release}-{hashlib.sha256(str(java.executable).encode()).hexdigest()[:8]}"


def _prepare(version: KafkaVersion, java: Java, jars: Jars, directory: Path) -> None:
    draft = directory.with_name(f".{directory.name}.partial")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    spec = ClusterSpec(name="trial", version=version)
    work = WorkDirectory("twinlog-trial-")
    ports = PortLease(3)
    try:
        client_port, internal_port, controller_port = ports.ports
        node = NodePlace(
            node_id=1,
            directory=work.path,
            client_port=client_port,
            internal_port=internal_port,
            controller_port=controller_port,
        )
        (node.directory / "server.properties").write_text(
            render_properties(server_properties(spec, node, [node], tls=None))
        )
        cluster_id = new_kafka_id()
        checkpoint = make_checkpoint(node, OPEN, java=java, class_path=jars.class_path, cluster_id=cluster_id)
        write_formatted(node, version, cluster_id, checkpoint)
        (draft / CHECKPOINT).write_bytes(checkpoint)
        archive_option = f"-XX:ArchiveClassesAtExit={draft / _ARCHIVE}"
        command = broker_command(
            spec, node, java=java, class_path=jars.class_path, jvm_options=[archive_option]
        )
        _run_once(Broker(node, command))
    finally:
        ports.release()
        work.remove()
    draft.rename(directory)


def _run_once(broker: Broker) -> None:
    """Start the broker and stop it in order: its JVM writes the archive at exit."""
    deadline = time.monotonic() + _TRIAL_SECONDS
    broker.launch()
    try:
        while not broker.check_ready():
            if time.monotonic() > deadline:
                raise ProcessError(f"the trial broker was not up after {_TRIAL_SECONDS:.0f} s")
            time.sleep(_POLL_SECONDS)
    finally:
        broker.stop(_TRIAL_SECONDS)

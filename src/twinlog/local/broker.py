"""One broker process of a cluster."""

import base64
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from twinlog.local.broker_properties import NodePlace, server_properties
from twinlog.local.download.artifacts import Jars, broker_artifacts, ensure_jars
from twinlog.local.port_lease import PortLease
from twinlog.local.processes.process import GuardedProcess, LogTail, ProcessError, last_lines
from twinlog.local.spec import OPEN, SCRAM_MECHANISMS, ClusterSpec, KafkaVersion, SaslMechanism, Security
from twinlog.machine import Java, WorkDirectory
from twinlog.properties_text import render_properties

_STARTED = re.compile(r"Kafka ?Server.* started")
_HERE = Path(__file__).parent
_LOGGING = [
    f"-Dlog4j2.configurationFile={_HERE / 'broker_log4j2.properties'}",
    "-Dlog4j2.disableJmx=true",
]
_LOGGING_BEFORE_4 = [f"-Dlog4j.configuration=file:{_HERE / 'broker_log4j.properties'}"]


def broker_command(
    spec: ClusterSpec, node: NodePlace, *, java: Java, class_path: str, jvm_options: Sequence[str] = ()
) -> list[str]:
    """The command line for a broker whose directory is ready."""
    speed = ["-XX:TieredStopAtLevel=1", "-Xss512k"] if spec.quick_start else []
    return [
        str(java.executable),
        "-Xms64m",
        f"-Xmx{spec.heap_megabytes}m",
        "-XX:+UseSerialGC",
        *speed,
        "-Djava.awt.headless=true",
        *(_LOGGING_BEFORE_4 if spec.version.is_before_4 else _LOGGING),
        *jvm_options,
        *("-cp", class_path),
        "kafka.Kafka",
        str(node.directory / "server.properties"),
    ]


class Broker:
    """Starts, kills and pauses one broker. Calls block briefly; its cluster calls them one at a time."""

    def __init__(self, node: NodePlace, command: Sequence[str]) -> None:
        self.node = node
        self._command = command
        self._process: GuardedProcess | None = None
        self._tail: LogTail | None = None
        self._ready = False

    @property
    def log_file(self) -> Path:
        return self.node.directory / "broker.log"

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        return self._process.pid if self._process is not None and self._process.running else None

    @property
    def process(self) -> GuardedProcess:
        """Raises ProcessError before the first start."""
        if self._process is None:
            raise ProcessError(f"broker {self.node.node_id} was not started")
        return self._process

    def launch(self) -> None:
        """Start the process; it serves once `check_ready` returns True."""
        self._ready = False
        self._tail = LogTail(self.log_file)
        self._process = GuardedProcess(self._command, output=self.log_file, cwd=self.node.directory)

    def check_ready(self) -> bool:
        """Whether it serves clients. Raises ProcessError with the end of its log if it ended instead."""
        if self._tail is not None and not self._ready:
            exit_code = self.process.poll()
            self._ready = any(_STARTED.search(line) for line in self._tail.new_lines())
            if exit_code is not None:
                raise ProcessError(
                    f"broker {self.node.node_id} ended with {exit_code} while starting; the end of its log:\n"
                    f"{last_lines(self.log_file, 15)}"
                )
        return self._ready

    def kill(self) -> None:
        """SIGKILL: like a crash of the machine, except that written data is kept."""
        self.process.kill()

    def stop(self, grace_seconds: float) -> None:
        """Controlled shutdown, SIGKILL after `grace_seconds`. No-op when it does not run."""
        if self._process is not None:
            self._process.stop(grace_seconds)


# Prepared once per Kafka version and Java, so that each broker starts in a second instead of three:
#
# - the checkpoint with which a formatted directory begins (saves a JVM per broker);
# - a class archive (AppCDS): the JVM maps the broker's classes instead of parsing and verifying them.
#
# Both come from one short trial run of a broker, and are stored next to the jars. A JVM that cannot use the
# archive ignores it.

# Formats a broker's directory as Kafka's StorageTool does, without a JVM start for each broker.
#
# A formatted directory holds two files: `meta.properties` (text, with the ids of this cluster and node)
# and a checkpoint (the first records of the metadata log: feature levels and SCRAM users). Without SCRAM
# users the second is the same for all brokers of a version, so StorageTool writes it once and it is kept
# beside the class archive.

_FORMAT_SECONDS = 240.0
_SCRAM_ITERATIONS = 4096
CHECKPOINT = "bootstrap.checkpoint"
_CHECKPOINT_SINCE_4_4 = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"


def new_kafka_id() -> str:
    """A random id in Kafka's form: url-safe base64 of a UUID, 22 characters. Never begins with a dash, as
    Kafka's.
    """
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def write_formatted(node: NodePlace, version: KafkaVersion, cluster_id: str, checkpoint: bytes) -> None:
    """Format the node's log directory for this cluster and node."""
    place = node.log_directory / (CHECKPOINT if version < "4.4" else _CHECKPOINT_SINCE_4_4)
    place.parent.mkdir(parents=True)
    place.write_bytes(checkpoint)
    meta = f"version=1\ncluster.id={cluster_id}\nnode.id={node.node_id}\ndirectory.id={new_kafka_id()}\n"
    (node.log_directory / "meta.properties").write_text(meta)


def stored_cluster_id(node: NodePlace) -> str:
    """The id that a broker with ZooKeeper was told, once it serves."""
    lines = (node.log_directory / "meta.properties").read_text().splitlines()
    return dict(line.partition("=")[::2] for line in lines)["cluster.id"]


def make_checkpoint(
    node: NodePlace, security: Security, *, java: Java, class_path: str, cluster_id: str
) -> bytes:
    """Let StorageTool format the log directory of `node`, which must not exist; read its checkpoint, and
    remove the directory again.

    The node's `server.properties` must exist. Blocks for a JVM start. Raises ProcessError.
    """
    scram = [
        option
        for mechanism in security.mechanisms
        if mechanism in SCRAM_MECHANISMS
        for user, password in security.passwords.items()
        for option in ("--add-scram", f"{mechanism}={_scram_credential(mechanism, user, password)}")
    ]
    command = [
        str(java.executable),
        "-Xmx128m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        *("-cp", class_path),
        "kafka.tools.StorageTool",
        "format",
        *("--cluster-id", cluster_id),
        *("--config", str(node.directory / "server.properties")),
        *scram,
    ]
    result = subprocess.run(command, capture_output=True, text=True, timeout=_FORMAT_SECONDS, check=False)
    checkpoints = list(node.log_directory.rglob("*.checkpoint"))
    if result.returncode != 0 or not checkpoints:
        raise ProcessError(f"StorageTool could not format {node.log_directory}: {_told(result)}")
    content = checkpoints[0].read_bytes()
    shutil.rmtree(node.log_directory)
    return content


def _scram_credential(mechanism: SaslMechanism, user: str, password: str) -> str:
    """StorageTool's option for a user. The password is salted here, because StorageTool's parser cannot read
    every password."""
    salt = os.urandom(16)
    digest = {SaslMechanism.SCRAM_SHA_256: "sha256", SaslMechanism.SCRAM_SHA_512: "sha512"}[mechanism]
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, _SCRAM_ITERATIONS)
    encoded = {"salt": base64.b64encode(salt).decode(), "saltedpassword": base64.b64encode(salted).decode()}
    facts = ",".join(f'{key}="{value}"' for key, value in encoded.items())
    return f'[name="{user}",{facts},iterations={_SCRAM_ITERATIONS}]'


def _told(result: subprocess.CompletedProcess[str]) -> str:
    lines = (result.stderr + result.stdout).strip().splitlines()
    return lines[-1] if lines else f"exit code {result.returncode}"


_TRIAL_SECONDS = 240.0
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
    """Download and prepare what is missing: some seconds the first time, later at once.

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

"""Formats a broker's directory as Kafka's StorageTool does, without a JVM start for each broker.

A formatted directory holds two files: `meta.properties` (text, with the ids of this cluster and node) and a
checkpoint (the first records of the metadata log: feature levels and SCRAM users). Without SCRAM
users the second is the same for all brokers of a version, so StorageTool writes it once and it is kept beside
the class archive.
"""

import base64
import hashlib
import os
import shutil
import subprocess
import uuid

from twinlog.local.broker_properties import NodePlace
from twinlog.local.processes.process import ProcessError
from twinlog.local.spec import SCRAM_MECHANISMS, KafkaVersion, SaslMechanism, Security
from twinlog.machine.java import Java

_FORMAT_SECONDS = 60.0
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

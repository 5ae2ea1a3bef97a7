"""What is imported in these tests, and how the result is read: by the services' own reader."""

from pathlib import Path

from twinlog.config import Configuration, load
from twinlog.imports import Fate, Imported, ImportOptions, import_text


class OneFile:
    """A file system with the imported file, and with the files that it refers to."""

    def __init__(self, text: str, others: dict[str, str]) -> None:
        self._files = {"mm2.properties": text, **others}

    def read_bytes(self, path: str) -> bytes:
        if path not in self._files:
            raise FileNotFoundError(2, "No such file or directory")
        return self._files[path].encode("latin-1")

    def is_file(self, path: str) -> bool:
        return path in self._files


def read_back(imported: Imported, *, files: dict[str, str] | None = None) -> Configuration:
    """As `twinlog run --strict` reads it: a key that means nothing is an error."""
    reader = OneFile(imported.properties, files or {})
    return load(Path("mm2.properties"), environ={}, files=reader, strict=True)


def imported(text: str, **options: object) -> Imported:
    return import_text(text, file="estate", options=ImportOptions(**options))  # type: ignore[arg-type]


def places(found: Imported, fate: Fate) -> list[str]:
    return [line.place for line in found.lines if line.fate is fate]


def texts(found: Imported, fate: Fate) -> str:
    return "\n".join(f"{line.place}: {line.text}" for line in found.lines if line.fate is fate)


STRIMZI_V1 = """\
apiVersion: kafka.strimzi.io/v1
kind: KafkaMirrorMaker2
metadata:
  name: mirror
  namespace: kafka
spec:
  version: 4.1.1
  replicas: 3
  target:
    alias: west
    bootstrapServers: west-kafka-bootstrap:9093
    groupId: mirror-group
    configStorageTopic: mirror-config
    offsetStorageTopic: mirror-offset
    statusStorageTopic: mirror-status
    tls:
      trustedCertificates:
        - secretName: west-cluster-ca-cert
          certificate: ca.crt
        - secretName: old-ca
          certificate: old.crt
    authentication:
      type: tls
      certificateAndKey:
        secretName: west-user
        certificate: user.crt
        key: user.key
    config:
      config.storage.replication.factor: -1
      offset.storage.replication.factor: -1
      producer.max.request.size: 2000000
      exactly.once.source.support: enabled
  mirrors:
  - source:
      alias: east
      bootstrapServers: east-kafka-bootstrap:9093
      tls:
        trustedCertificates:
          - secretName: east-cluster-ca-cert
            pattern: "*.crt"
      authentication:
        type: scram-sha-512
        username: mirror
        passwordSecret:
          secretName: mirror-east
          password: password
    sourceConnector:
      tasksMax: 5
      autoRestart:
        enabled: true
      config:
        replication.factor: -1
        offset-syncs.topic.replication.factor: -1
        offset-syncs.topic.location: target
        sync.topic.acls.enabled: "false"
        refresh.topics.interval.seconds: 60
        replication.policy.class: org.apache.kafka.connect.mirror.IdentityReplicationPolicy
        source.consumer.client.rack: zone-1
        producer.override.linger.ms: 20
    checkpointConnector:
      config:
        checkpoints.topic.replication.factor: -1
        sync.group.offsets.enabled: true
        offset-syncs.topic.location: target
        replication.policy.class: org.apache.kafka.connect.mirror.IdentityReplicationPolicy
    topicsPattern: "orders, payments\\\\..*"
    topicsExcludePattern: "payments\\\\.test"
    groupsPattern: "app-.*"
"""

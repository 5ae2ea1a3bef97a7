"""A broker's `server.properties`, and the properties of its clients. Pure: created from a spec and places.

Three listeners: CLIENT for clients, secured as requested; INTERNAL between brokers; CONTROLLER for the
quorum. The quorum is the static one (`controller.quorum.voters`), which every release with KRaft supports,
and which writes no port into a formatted directory. A release with ZooKeeper has its address instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from twinlog.local.spec import ADDRESS, SCRAM_MECHANISMS, ClusterSpec, SaslMechanism, Security
from twinlog.properties_text import plain_login, scram_login


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlace:
    """Directory and ports of one broker; the same after a restart."""

    node_id: int
    directory: Path
    client_port: int
    internal_port: int
    controller_port: int

    @property
    def log_directory(self) -> Path:
        """Kafka's `log.dirs`."""
        return self.directory / "data"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerTlsFiles:
    """PEM files of the client listener."""

    ca: Path
    broker: Path
    """Private key, then certificate."""


def server_properties(
    spec: ClusterSpec, node: NodePlace, nodes: Sequence[NodePlace], tls: BrokerTlsFiles | None
) -> dict[str, str]:
    """All properties of `node`; those of the spec take precedence."""
    return {
        **_identity(spec, node, nodes),
        **_listeners(spec, node),
        **_for_small_machines(spec.broker_count),
        **_for_quick_tests(spec.broker_count),
        **({} if spec.version.is_before_4 else _share_groups(spec.broker_count)),
        **_tls(spec.security, tls),
        **_sasl(spec.security),
        **_authorizer(spec),
        **{key: text.replace("{node_id}", str(node.node_id)) for key, text in spec.properties.items()},
    }


def client_properties(
    security: Security, user: str, mechanism: SaslMechanism | None, tls: BrokerTlsFiles | None
) -> dict[str, str]:
    """The properties of `user`'s Java client besides `bootstrap.servers`; `mechanism` None = the first one
    enabled."""
    properties = {"security.protocol": security.protocol}
    if security.tls and tls is not None:
        properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(tls.ca)}
    if security.mechanisms:
        chosen = mechanism or security.mechanisms[0]
        login = {"username": user, "password": security.passwords[user]}
        entry = scram_login(login) if chosen in SCRAM_MECHANISMS else plain_login(login)
        properties |= {"sasl.mechanism": str(chosen), "sasl.jaas.config": entry}
    return properties


def _identity(spec: ClusterSpec, node: NodePlace, nodes: Sequence[NodePlace]) -> dict[str, str]:
    if spec.version.has_zookeeper:
        return {
            "broker.id": str(node.node_id),
            "zookeeper.connect": f"{ADDRESS}:{nodes[0].controller_port}",
            "log.dirs": str(node.log_directory),
        }
    voters = ",".join(f"{each.node_id}@{ADDRESS}:{each.controller_port}" for each in nodes)
    return {
        "process.roles": "broker,controller",
        "node.id": str(node.node_id),
        "controller.quorum.voters": voters,
        "log.dirs": str(node.log_directory),
    }


def _listeners(spec: ClusterSpec, node: NodePlace) -> dict[str, str]:
    security, far = spec.security, spec.far
    client = f"CLIENT://{ADDRESS}:{node.client_port}"
    internal = f"INTERNAL://{ADDRESS}:{node.internal_port}"
    inside = "SASL_PLAINTEXT" if security.guards_internals else "PLAINTEXT"
    listening = [client, internal]
    told = spec.client_host.format(node_id=node.node_id)
    advertised = [f"CLIENT://{told}:{node.client_port}", internal]
    protocols = f"CLIENT:{security.protocol},INTERNAL:{inside}"
    controller = {}
    if not spec.version.has_zookeeper:
        listening.append(f"CONTROLLER://{ADDRESS}:{node.controller_port}")
        protocols += f",CONTROLLER:{inside}"
        controller = {"controller.listener.names": "CONTROLLER"}
    if far is not None:
        listening.append(f"FAR://{ADDRESS}:{far.port}")
        advertised.append(f"FAR://{ADDRESS}:{far.advertised_port}")
        protocols += f",FAR:{security.protocol}"
    return {
        **controller,
        "listeners": ",".join(listening),
        "advertised.listeners": ",".join(advertised),
        "inter.broker.listener.name": "INTERNAL",
        "listener.security.protocol.map": protocols,
    }


def _for_small_machines(broker_count: int) -> dict[str, str]:
    in_sync = "2" if broker_count == 3 else "1"
    return {
        "default.replication.factor": str(broker_count),
        "offsets.topic.replication.factor": str(broker_count),
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": str(broker_count),
        "transaction.state.log.num.partitions": "4",
        "transaction.state.log.min.isr": in_sync,
        "num.network.threads": "2",
        "num.io.threads": "4",
        "background.threads": "2",
        "log.cleaner.dedupe.buffer.size": str(4 * 1024 * 1024),
    }


def _for_quick_tests(broker_count: int) -> dict[str, str]:
    return {
        # By default an empty record every half second: half of the cost of an idle broker.
        "metadata.max.idle.interval.ms": "5000",
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "broker.heartbeat.interval.ms": "1000" if broker_count == 1 else "500",
        "broker.session.timeout.ms": "3000",
        "log.retention.check.interval.ms": "1000",
        "log.cleaner.backoff.ms": "1000",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    }


def _share_groups(broker_count: int) -> dict[str, str]:
    return {
        "share.coordinator.state.topic.replication.factor": str(broker_count),
        "share.coordinator.state.topic.min.isr": "2" if broker_count == 3 else "1",
        "share.coordinator.state.topic.num.partitions": "4",
    }


def _tls(security: Security, tls: BrokerTlsFiles | None) -> dict[str, str]:
    if not security.tls or tls is None:
        return {}
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tls.broker),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tls.ca),
        "ssl.client.auth": "required" if security.client_certificates else "none",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
    }


def _sasl(security: Security) -> dict[str, str]:
    if not security.guards_internals:
        return {}
    known = {f"user_{name}": password for name, password in security.passwords.items()}
    login = {
        "username": security.super_user,
        "password": security.super_password,
        f"user_{security.super_user}": security.super_password,
    }
    properties = {
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.internal.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.internal.plain.sasl.jaas.config": plain_login(login),
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": plain_login(login),
    }
    if security.mechanisms:
        properties["listener.name.client.sasl.enabled.mechanisms"] = ",".join(security.mechanisms)
    for mechanism in security.mechanisms:
        key = f"listener.name.client.{mechanism.lower()}.sasl.jaas.config"
        # SCRAM credentials are in the metadata log: see node_storage.py.
        properties[key] = scram_login({}) if mechanism in SCRAM_MECHANISMS else plain_login(known)
    return properties


def _authorizer(spec: ClusterSpec) -> dict[str, str]:
    if not spec.security.authorizer:
        return {}
    standard = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    with_zookeeper = "kafka.security.authorizer.AclAuthorizer"
    return {
        "authorizer.class.name": with_zookeeper if spec.version.has_zookeeper else standard,
        "super.users": f"User:{spec.security.super_user}",
    }

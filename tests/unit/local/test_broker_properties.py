"""What brokers and their clients are told."""

from pathlib import Path

from twinlog.local.broker_properties import BrokerTlsFiles, NodePlace, client_properties, server_properties
from twinlog.local.spec import ClusterSpec, FarListener, KafkaVersion, SaslMechanism, Security

_TLS = BrokerTlsFiles(ca=Path("ca.pem"), broker=Path("broker.pem"))
_SECURED = Security(
    tls=True,
    mechanisms=(SaslMechanism.SCRAM_SHA_512, SaslMechanism.PLAIN),
    users={"alice": 'quote"back\\slash'},
    super_password="topmost",
    authorizer=True,
)


def _node(node_id: int) -> NodePlace:
    return NodePlace(
        node_id=node_id,
        directory=Path(f"node-{node_id}"),
        client_port=1000 + node_id,
        internal_port=2000 + node_id,
        controller_port=3000 + node_id,
    )


def test_open_broker_listens_on_loopback_only() -> None:
    properties = server_properties(ClusterSpec(), _node(1), [_node(1)], tls=None)
    listeners = properties["listeners"].split(",")
    assert listeners == [
        "CLIENT://127.0.0.1:1001",
        "INTERNAL://127.0.0.1:2001",
        "CONTROLLER://127.0.0.1:3001",
    ]
    protocols = "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
    assert properties["listener.security.protocol.map"] == protocols
    assert not [key for key in properties if "sasl" in key or "ssl" in key]


def test_a_far_listener_names_another_port_than_its_own() -> None:
    spec = ClusterSpec(far=FarListener(port=4001, advertised_port=5001))
    properties = server_properties(spec, _node(1), [_node(1)], tls=None)
    assert "FAR://127.0.0.1:4001" in properties["listeners"].split(",")
    assert "FAR://127.0.0.1:5001" in properties["advertised.listeners"].split(",")
    assert properties["listener.security.protocol.map"].endswith(",FAR:PLAINTEXT")


def test_three_brokers_know_all_voters_and_replicate_internal_topics() -> None:
    nodes = [_node(1), _node(2), _node(3)]
    properties = server_properties(ClusterSpec(broker_count=3), nodes[1], nodes, tls=None)
    assert properties["node.id"] == "2"
    assert properties["controller.quorum.voters"] == "1@127.0.0.1:3001,2@127.0.0.1:3002,3@127.0.0.1:3003"
    assert properties["offsets.topic.replication.factor"] == "3"
    assert properties["transaction.state.log.min.isr"] == "2"


def test_properties_of_the_spec_win() -> None:
    spec = ClusterSpec(properties={"auto.create.topics.enable": "true", "log.segment.bytes": "1048576"})
    properties = server_properties(spec, _node(1), [_node(1)], tls=None)
    assert properties["auto.create.topics.enable"] == "true"
    assert properties["log.segment.bytes"] == "1048576"


def test_node_id_stands_for_each_brokers_own() -> None:
    spec = ClusterSpec(broker_count=3, properties={"broker.rack": "rack-{node_id}"})
    nodes = [_node(1), _node(2), _node(3)]
    racks = [server_properties(spec, node, nodes, tls=None)["broker.rack"] for node in nodes]
    assert racks == ["rack-1", "rack-2", "rack-3"]


def test_brokers_before_kraft_have_a_zookeeper_and_no_controllers() -> None:
    security = Security(mechanisms=(SaslMechanism.PLAIN,), authorizer=True)
    spec = ClusterSpec(version=KafkaVersion.V2_8, security=security, broker_count=3)
    nodes = [_node(1), _node(2), _node(3)]
    properties = server_properties(spec, nodes[1], nodes, tls=None)
    assert properties["broker.id"] == "2"
    assert properties["zookeeper.connect"] == f"127.0.0.1:{nodes[0].controller_port}"
    assert "CONTROLLER" not in properties["listeners"] + properties["listener.security.protocol.map"]
    assert "process.roles" not in properties
    assert properties["authorizer.class.name"] == "kafka.security.authorizer.AclAuthorizer"


def test_share_groups_are_unknown_to_3_9() -> None:
    old = server_properties(ClusterSpec(version=KafkaVersion.V3_9), _node(1), [_node(1)], tls=None)
    new = server_properties(ClusterSpec(), _node(1), [_node(1)], tls=None)
    assert not [key for key in old if key.startswith("share.")]
    assert new["share.coordinator.state.topic.replication.factor"] == "1"


def test_secured_broker_guards_every_listener() -> None:
    properties = server_properties(ClusterSpec(security=_SECURED), _node(1), [_node(1)], _TLS)
    protocols = "CLIENT:SASL_SSL,INTERNAL:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT"
    assert properties["listener.security.protocol.map"] == protocols
    assert properties["listener.name.client.sasl.enabled.mechanisms"] == "SCRAM-SHA-512,PLAIN"
    assert properties["super.users"] == "User:super"
    known = properties["listener.name.client.plain.sasl.jaas.config"]
    assert known == (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'user_super="topmost" user_alice="quote\\"back\\\\slash";'
    )


def test_client_gets_what_its_user_needs() -> None:
    properties = client_properties(_SECURED, "alice", SaslMechanism.PLAIN, _TLS)
    assert properties == {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "ca.pem",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            'username="alice" password="quote\\"back\\\\slash";'
        ),
    }


def test_client_uses_the_first_mechanism_unless_told() -> None:
    properties = client_properties(_SECURED, "super", None, _TLS)
    assert properties["sasl.mechanism"] == "SCRAM-SHA-512"
    assert "ScramLoginModule" in properties["sasl.jaas.config"]


def test_client_of_an_open_cluster_needs_nothing() -> None:
    assert client_properties(Security(), "super", None, None) == {"security.protocol": "PLAINTEXT"}

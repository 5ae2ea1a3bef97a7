"""What each Kafka client is given, and that nobody sees its secrets."""

import pickle

from twinlog.config import ClientConfig, Configuration
from twinlog.model import Flow
from unit.config.config_files import TWO_CLUSTERS, load_more, load_text

A_TO_B = Flow("A", "B")
SECRET = "p4ssw0rd-of-nobody"


def secured() -> Configuration:
    return load_text(
        TWO_CLUSTERS + "config.providers = env\n"
        "config.providers.env.class = org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
        "B.security.protocol = sasl_ssl\n"
        'B.sasl.jaas.config = x required password="${env:PW}";\n'
        "B.producer.compression.type = ${env:CODEC}\n"
        "B.admin.client.id = ${env:ID}\n"
        "A->B.source.consumer.client.id = mine\n"
        "A.ssl.truststore.password = " + SECRET + " \n"
        "twinlog.spark.conf.spark.hadoop.fs.s3a.secret.key = " + SECRET + "\n",
        environ={"PW": SECRET, "CODEC": "zstd", "ID": "mirror"},
    )


def test_clients_get_resolved_settings_of_their_cluster() -> None:
    clients = secured().flow(A_TO_B).clients
    assert clients.data_producer.alias == "B"
    assert clients.data_producer.bootstrap_servers == ("b:9092",)
    assert clients.data_producer.properties["sasl.jaas.config"] == f'x required password="{SECRET}";'
    assert clients.data_producer.properties["compression.type"] == "zstd"
    assert clients.data_producer.properties["security.protocol"] == "sasl_ssl"
    assert clients.target_admin.properties["client.id"] == "mirror"
    assert clients.source_consumer.alias == "A"
    assert clients.source_consumer.properties["ssl.truststore.password"] == SECRET
    assert "sasl.jaas.config" not in clients.source_consumer.properties


def test_isolation_is_read_committed_unless_the_user_says_otherwise() -> None:
    clients = load_text(TWO_CLUSTERS).flow(A_TO_B).clients
    assert clients.source_consumer.properties["isolation.level"] == "read_committed"
    assert clients.target_consumer.properties["isolation.level"] == "read_committed"
    clients = load_more("A.consumer.isolation.level = read_uncommitted").flow(A_TO_B).clients
    assert clients.source_consumer.properties["isolation.level"] == "read_uncommitted"
    assert clients.target_consumer.properties["isolation.level"] == "read_committed"


def test_client_ids_are_mm2s() -> None:
    clients = secured().flow(A_TO_B).clients
    consumer = clients.source_consumer.for_role(
        A_TO_B, "MirrorSourceConnector", "replication-consumer", task_index=1
    )
    assert consumer.properties["client.id"] == "mine|A->B|MirrorSourceConnector-1|replication-consumer"
    assert clients.source_consumer.properties["client.id"] == "mine"
    producer = clients.source_producer.for_role(A_TO_B, "MirrorSourceConnector")
    assert producer.properties["client.id"] == "A->B|MirrorSourceConnector"


def test_every_setting_knows_where_it_was_written() -> None:
    origins = secured().flow(A_TO_B).clients.data_producer.origins
    assert (origins["compression.type"].key, origins["compression.type"].line) == (
        "B.producer.compression.type",
        9,
    )
    assert origins["compression.type"].reference == "${env:CODEC}"
    consumer = secured().flow(A_TO_B).clients.source_consumer.origins
    assert consumer["isolation.level"].line == 0


def test_no_secret_is_shown() -> None:
    configuration = secured()
    assert SECRET not in repr(configuration)
    shown = configuration.flow(A_TO_B).clients.data_producer.redacted()
    assert shown["sasl.jaas.config"] == "***"
    assert shown["compression.type"] == "${env:CODEC}"
    assert shown["bootstrap.servers"] == "b:9092"


def test_clusters_by_themselves() -> None:
    clusters = secured().clusters
    assert clusters["B"].admin.properties["security.protocol"] == "sasl_ssl"
    assert "compression.type" not in clusters["B"].producer.properties
    assert clusters["A"].consumer.properties == {
        "bootstrap.servers": "a:9092",
        "ssl.truststore.password": SECRET,
    }


def test_a_configuration_travels_to_workers() -> None:
    configuration = secured()
    assert pickle.loads(pickle.dumps(configuration)) == configuration


def test_a_client_config_needs_nothing_but_properties() -> None:
    client = ClientConfig(
        alias="A", properties={"bootstrap.servers": "a:1 , b:2", "ssl.key.password": SECRET}
    )
    assert client.bootstrap_servers == ("a:1", "b:2")
    assert repr(client) == (
        "ClientConfig(alias='A', properties={'bootstrap.servers': 'a:1 , b:2', 'ssl.key.password': '***'})"
    )

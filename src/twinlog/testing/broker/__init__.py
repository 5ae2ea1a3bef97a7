"""A Kafka cluster in the test's process that speaks Kafka's protocol.

    async with FakeKafka(node_count=3, seed=7) as kafka:
        kafka.cluster.create_topic("orders", partition_count=2)
        properties = {"bootstrap.servers": kafka.bootstrap}

Under `VirtualTimeLoop` it listens in memory and time is the loop's; under any other loop on sockets of this
machine. Real brokers are its model: the suite in tests/contract/cluster runs against both, and where they
differ, this one is wrong. With one seed a history in memory repeats itself; in another process only with the
same PYTHONHASHSEED and memory addresses (`setarch -R`), because clients have sets.

    codec      a request's bytes as an object of kio, an answer's fields as bytes
    releases   the versions that brokers of a release offer
    cluster    the state; elect, lose_tail, …; FakeKafka has stop_node and start_node
    partitions nodes, topics, partitions, and what a client reads already
    log        one replica's log; segments: its files, which retention removes if the broker config
               `log.retention.check.interval.ms` says how often it looks
    groups     groups of all protocols, and committed offsets
    configs    of topics and brokers: names, defaults, what is refused
    acls       who may do what, and logins, where `cluster.passwords` asks for them
    server     listening and connections; FakeKafka
    faults     what goes wrong: kafka.faults.begin(api="fetch", hangs=True); quotas
    calls      what a handler is given
    handlers   one function per API
"""

from twinlog.testing.broker.cluster import Cluster as Cluster
from twinlog.testing.broker.faults import Fault as Fault
from twinlog.testing.broker.faults import Faults as Faults
from twinlog.testing.broker.faults import Loss as Loss
from twinlog.testing.broker.server import FakeKafka as FakeKafka

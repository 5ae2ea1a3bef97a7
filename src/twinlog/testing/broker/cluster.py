"""The state of the cluster: nodes, topics, partitions, coordinators. No I/O; time and chance are given."""

import contextlib
import zlib
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from uuid import UUID

from kio.schema.errors import ErrorCode

from twinlog.batches import EndMarker
from twinlog.clock import Clock
from twinlog.testing.broker.acls import Authorizer
from twinlog.testing.broker.appending import append_marker
from twinlog.testing.broker.faults import Quotas
from twinlog.testing.broker.groups import Groups
from twinlog.testing.broker.log import LogSettings, PartitionLog
from twinlog.testing.broker.partitions import Node as Node
from twinlog.testing.broker.partitions import Partition as Partition
from twinlog.testing.broker.partitions import Topic as Topic
from twinlog.testing.broker.producer_states import AppendError
from twinlog.testing.broker.transactions import Identity, TopicIndex, TransactionCoordinators

# Leaders move, brokers go and come back, logs lose their tails.

NO_LEADER = -1


class ClusterOutages:
    """A part of `Cluster`."""

    nodes: Mapping[int, Node]
    transactions: TransactionCoordinators
    controller_id: int

    def partitions(self) -> Iterable[Partition]:
        raise NotImplementedError

    @property
    def live_ids(self) -> list[int]:
        return [node.node_id for node in self.nodes.values() if node.is_up]

    def elect(self, partition: Partition, node_id: int) -> None:
        """Make a replica the leader in a new leader epoch; NO_LEADER for nobody.

        The others cut what it does not have: the election of one that was not in sync loses records.
        """
        partition.leader_epoch += 1
        if node_id != NO_LEADER:
            if node_id not in partition.isr:
                partition.isr = [node_id]
            partition.leader = node_id
            partition.log.begin_epoch(partition.leader_epoch, partition.log.end_offset)
            partition.synchronize(self.live_ids)
        partition.leader = node_id
        partition.wake()
        self.transactions.write_pending_markers()

    def lose_tail(self, partition: Partition, offset: int) -> None:
        """Every replica loses what it has from the offset on, as after a power cut; a leader epoch begins."""
        for log in partition.logs.values():
            log.cut(offset)
        if partition.leader != NO_LEADER:
            self.elect(partition, partition.leader)

    def node_down(self, node_id: int) -> None:
        """The broker is away: its partitions are led by others in sync, or by nobody."""
        self.nodes[node_id].is_up = False
        if self.controller_id == node_id:
            self.controller_id = next(iter(self.live_ids), NO_LEADER)
        for partition in self.partitions():
            if node_id not in partition.replicas:
                continue
            if node_id in partition.isr and len(partition.isr) > 1:
                partition.isr.remove(node_id)
            if partition.leader == node_id:
                in_sync = [each for each in partition.isr if each in self.live_ids]
                self.elect(partition, in_sync[0] if in_sync else NO_LEADER)
            elif partition.leader != NO_LEADER:
                partition.replicate()

    def node_up(self, node_id: int) -> None:
        """The broker is back with the logs that it had, and catches up."""
        self.nodes[node_id].is_up = True
        if self.controller_id == NO_LEADER:
            self.controller_id = node_id
        for partition in self.partitions():
            if node_id not in partition.replicas:
                continue
            if partition.leader != NO_LEADER:
                partition.synchronize(self.live_ids)
            elif node_id in partition.isr:
                self.elect(partition, node_id)

    def forget_producers(self, partition: Partition) -> None:
        """As producer.id.expiration.ms does: all but those in a transaction."""
        for log in partition.logs.values():
            log.producers.forget(before_ms=1 << 62)


_COORDINATOR_PARTITIONS = 50


class Cluster(ClusterOutages):
    """What all brokers know."""

    def __init__(self, *, node_count: int, clock: Clock, random: Random) -> None:
        self.clock = clock
        self.random = random
        self.cluster_id = f"fake-{random.getrandbits(64):016x}"
        self.nodes = {node_id: Node(node_id) for node_id in range(1, node_count + 1)}
        self.controller_id = 1
        self.topics: dict[str, Topic] = {}
        self.moved_coordinators: dict[tuple[int, str], int] = {}
        """The node by coordinator type and key, where it is not the one by hash."""
        self.is_rack_aware = False
        """Whether leaders send consumers to replicas of their rack (replica.selector.class, KIP-392)."""
        self.transactions = TransactionCoordinators(self)
        self.broker_configs: dict[str, str] = {}
        """Cluster-wide defaults, from which topics inherit (`log.` names are not translated: topic names)."""
        self.authorizer: Authorizer | None = None
        """None: everyone may do everything, and there are no ACLs."""
        self.quotas = Quotas(clock)
        self.scram_users: dict[str, dict[int, int]] = {}
        """The iterations by user and mechanism: 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512."""
        self.passwords: dict[str, str] | None = None
        """By user: clients have to log in by SASL. None: nobody logs in."""
        self.principals: dict[str, str] = {}
        """By client id, as "User:alice"."""
        self.groups = Groups(random, self.broker_configs)

    @property
    def live_nodes(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.is_up]

    def partition(self, topic: str, index: int) -> Partition | None:
        found = self.topics.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        return found.partitions[index]

    def topic_by_id(self, topic_id: UUID | None) -> Topic | None:
        return next((topic for topic in self.topics.values() if topic.topic_id == topic_id), None)

    def partitions(self) -> Iterable[Partition]:
        for topic in self.topics.values():
            yield from topic.partitions

    def create_topic(
        self,
        name: str,
        *,
        partition_count: int = 1,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
        assignment: Sequence[Sequence[int]] = (),
    ) -> Topic:
        """Without a replication factor, a replica on each node, three at most. Raises ValueError."""
        if name in self.topics:
            raise ValueError(f"{name} exists")
        topic_id = UUID(int=self.random.getrandbits(128), version=4)
        topic = self.topics[name] = Topic(name, topic_id, [], dict(configs or {}))
        self.add_partitions(topic, partition_count, replication_factor, assignment)
        return topic

    def add_partitions(
        self,
        topic: Topic,
        count: int,
        replication_factor: int | None = None,
        assignment: Sequence[Sequence[int]] = (),
    ) -> None:
        """Grow the topic to `count` partitions."""
        factor = replication_factor or min(3, len(self.nodes))
        if topic.partitions:
            factor = replication_factor or len(topic.partitions[0].replicas)
        node_ids = list(self.nodes)
        before = len(topic.partitions)
        for index in range(before, count):
            if assignment:
                replicas = list(assignment[index - before])
            else:
                first = (zlib.crc32(topic.name.encode()) + index) % len(node_ids)
                replicas = [node_ids[(first + step) % len(node_ids)] for step in range(factor)]
            settings = LogSettings(topic.configs, self.broker_configs)
            logs = {node_id: PartitionLog(settings) for node_id in replicas}
            isr = [node_id for node_id in replicas if self.nodes[node_id].is_up] or replicas[:1]
            leader = isr[0] if self.nodes[isr[0]].is_up else -1
            logs[isr[0]].begin_epoch(0, 0)
            topic.partitions.append(Partition(topic.name, index, replicas, logs, leader, isr=isr))

    def delete_topic(self, name: str) -> None:
        topic = self.topics.pop(name)
        self.groups.forget_topic(name)
        for partition in topic.partitions:
            partition.wake()

    def coordinator(self, key_type: int, key: str) -> Node | None:
        """The broker that coordinates a group (0), a transactional id (1) or a share partition (2)."""
        live = self.live_nodes
        moved = self.moved_coordinators.get((key_type, key))
        if moved is not None:
            return self.nodes[moved] if self.nodes[moved].is_up else None
        if not live:
            return None
        number = zlib.crc32(key.encode()) % _COORDINATOR_PARTITIONS
        home = self.nodes[1 + number % len(self.nodes)]
        return home if home.is_up else live[number % len(live)]

    def coordinator_error(self, node: Node, key_type: int, key: str) -> ErrorCode:
        """What a broker answers that is asked for this key."""
        return ErrorCode.none if self.coordinator(key_type, key) is node else ErrorCode.not_coordinator

    def write_marker(
        self, partition: TopicIndex, marker: EndMarker, identity: Identity, coordinator_epoch: int
    ) -> bool:
        """Let the leader end a transaction; False while there is none. Deleted partitions need no marker."""
        found = self.partition(*partition)
        if found is None:
            return True
        if found.leader < 0:
            return False
        now_ms = self.clock.now_ms()
        with contextlib.suppress(AppendError):  # The producer was fenced: nothing of it is open any more.
            append_marker(found, marker, *identity, coordinator_epoch, now_ms)
        return True

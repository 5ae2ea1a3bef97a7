"""Leaders move, brokers go and come back, logs lose their tails."""

from collections.abc import Iterable, Mapping

from twinlog.testing.broker.fetch_sessions import FetchSessions
from twinlog.testing.broker.partitions import Node, Partition
from twinlog.testing.broker.transactions import TransactionCoordinators

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

    def stop_replicating(self, partition: Partition, node_id: int) -> None:
        """The replica copies nothing more, and is not in sync any more."""
        partition.lagging.add(node_id)
        if node_id in partition.isr and len(partition.isr) > 1:
            partition.isr.remove(node_id)
        if partition.leader != NO_LEADER:
            partition.replicate()

    def replicate_again(self, partition: Partition, node_id: int) -> None:
        partition.lagging.discard(node_id)
        if partition.leader != NO_LEADER:
            partition.synchronize(self.live_ids)

    def lose_tail(self, partition: Partition, offset: int) -> None:
        """Every replica loses what it has from the offset on, as after a power cut; a leader epoch begins."""
        for log in partition.logs.values():
            log.cut(offset)
        if partition.leader != NO_LEADER:
            self.elect(partition, partition.leader)

    def node_down(self, node_id: int) -> None:
        """The broker is away: its partitions are led by others in sync, or by nobody."""
        self.nodes[node_id].is_up = False
        self.nodes[node_id].fetch_sessions = FetchSessions()
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

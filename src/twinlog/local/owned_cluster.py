"""One cluster of `twinlog local` on its owner's side: carries out requests and publishes the cluster's
state."""

from collections.abc import Callable

from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.processes.log_tail import last_lines
from twinlog.local.processes.process import ProcessError
from twinlog.local.registry import BrokerState, ClusterEntry, OwnerRequest, RunningBroker, RunningCluster


class OwnedCluster:
    """Deletes data only on `Request.END`. Publishes when a broker died or could not start; other clusters
    keep running."""

    def __init__(self, cluster: BlockingCluster, entry: ClusterEntry, *, tell: Callable[[str], None]) -> None:
        """`cluster` is running already; `tell` takes lines for people."""
        self._cluster = cluster
        self._entry = entry
        self._tell = tell
        self._states = dict.fromkeys(cluster.broker_ids, BrokerState.RUNNING)

    def publish(self) -> RunningCluster:
        """Publish the cluster's state."""
        described = self._described()
        self._entry.publish(described)
        return described

    def look(self) -> bool:
        """Carry out requests since the last call and find brokers that died. False after a request to end."""
        if self._entry.is_requested(OwnerRequest.END):
            self._cluster.stop()
            self._entry.release()
            return False
        if self._entry.is_requested(OwnerRequest.STOP):
            self._cluster.stop_brokers()
            self._settle(BrokerState.STOPPED)
            self._entry.answer(OwnerRequest.STOP)
        if self._entry.is_requested(OwnerRequest.START):
            self._start()
            self._entry.answer(OwnerRequest.START)
        self._see_who_died()
        return True

    def _start(self) -> None:
        try:
            self._cluster.start_brokers()
        except ProcessError as error:
            self._tell(f"cluster {self._cluster.spec.name}: {error}")
        self._settle(BrokerState.DIED)

    def _settle(self, absent: BrokerState) -> None:
        """Publish which brokers run; `absent` is the state of the others."""
        for broker_id in self._cluster.broker_ids:
            runs = self._cluster.broker_pid(broker_id) is not None
            self._states[broker_id] = BrokerState.RUNNING if runs else absent
        self.publish()

    def _see_who_died(self) -> None:
        name = self._cluster.spec.name
        for broker_id in self._cluster.broker_ids:
            if self._states[broker_id] is not BrokerState.RUNNING:
                continue
            if self._cluster.broker_pid(broker_id) is None:
                self._states[broker_id] = BrokerState.DIED
                self.publish()
                self._tell(
                    f"broker {broker_id} of cluster {name} died; its data are kept, and `twinlog local start"
                    f" {name}` starts it. The end of its log:\n"
                    f"{last_lines(self._cluster.log_file(broker_id), 15)}"
                )

    def _described(self) -> RunningCluster:
        cluster = self._cluster
        brokers = tuple(
            RunningBroker(
                broker_id=broker_id,
                pid=cluster.broker_pid(broker_id),
                address=address,
                log_file=str(cluster.log_file(broker_id)),
                state=self._states[broker_id],
            )
            for broker_id, address in zip(
                cluster.broker_ids, cluster.bootstrap_servers.split(","), strict=True
            )
        )
        return RunningCluster(
            name=cluster.spec.name,
            cluster_id=cluster.cluster_id,
            kafka_version=cluster.spec.version,
            bootstrap_servers=cluster.bootstrap_servers,
            security_protocol=cluster.spec.security.protocol,
            client_file=str(cluster.client_file()),
            brokers=brokers,
        )

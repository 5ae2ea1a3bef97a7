"""A cluster of real brokers, controlled from any thread."""

import asyncio
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self
from urllib.parse import quote

from twinlog.clock import Clock, SystemClock
from twinlog.local.broker import (
    Broker,
    BrokerImage,
    broker_command,
    ensure_image,
    make_checkpoint,
    new_kafka_id,
    stored_cluster_id,
    write_formatted,
)
from twinlog.local.broker_properties import (
    BrokerTlsFiles,
    NodePlace,
    client_properties,
    server_properties,
)
from twinlog.local.certificates import Authority
from twinlog.local.port_lease import PortLease
from twinlog.local.processes.process import GuardedProcess, ProcessError
from twinlog.local.spec import ADDRESS, SCRAM_MECHANISMS, ClusterSpec, SaslMechanism
from twinlog.machine import Java, WorkDirectory, find_java
from twinlog.properties_text import render_properties

_VALID_DAYS = 30.0


class CertificateAuthority:
    """Issues certificates into `directory`, which also holds its own, `ca.pem`. Only the user can read files
    with keys."""

    def __init__(self, directory: Path, clock: Clock | None = None) -> None:
        self._directory = directory
        self._authority = Authority("Twinlog local CA", clock or SystemClock())
        self.ca_file = directory / "ca.pem"
        self.ca_file.write_bytes(self._authority.pem)

    def issue_for_brokers(self) -> BrokerTlsFiles:
        """One certificate for all brokers of the cluster, because they share an address."""
        return BrokerTlsFiles(
            ca=self.ca_file, broker=self._issue("broker", "broker.pem", ADDRESS, "localhost")
        )

    def issue_for_user(self, user: str) -> Path:
        """Key and certificate whose common name is `user`."""
        return self._issue(user, f"user-{quote(user, safe='')}.pem")

    def _issue(self, name: str, file: str, *hosts: str) -> Path:
        signed, path = self._authority.sign(name, *hosts, days=_VALID_DAYS), self._directory / file
        path.touch(mode=0o600)
        path.write_bytes(signed.key + signed.chain)
        return path


# The ZooKeeper server of a cluster of brokers before KRaft, from the brokers' own jars.


def start_zookeeper(node: NodePlace, *, java: Java, class_path: str) -> GuardedProcess:
    """Start it beside this broker, on its controller port. Brokers wait until it listens."""
    file = node.directory / "zookeeper.properties"
    properties = {
        "dataDir": str(node.directory / "zookeeper"),
        "clientPort": str(node.controller_port),
        "clientPortAddress": ADDRESS,
        "admin.enableServer": "false",
        "maxClientCnxns": "0",
    }
    file.write_text(render_properties(properties))
    command = [
        *(str(java.executable), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        *("-cp", class_path),
        *("org.apache.zookeeper.server.ZooKeeperServerMain", str(file)),
    ]
    return GuardedProcess(command, output=node.directory / "zookeeper.log")


_START_SECONDS = 240.0
"""A broker takes four seconds, and on a machine without a free core minutes. One that ends is noticed at
once."""
_STOP_SECONDS = 20.0
_POLL_SECONDS = 0.05
_PORTS_PER_NODE = 3


class BlockingCluster:
    """Real brokers in their own directory, on free loopback ports. They end with this process, however it
    ends.

    `start` may be called once. Calls other than `abandon` are for one thread at a time.
    """

    def __init__(self, spec: ClusterSpec | None = None) -> None:
        self.spec = spec or ClusterSpec()
        self.cluster_id = new_kafka_id()
        self._brokers: dict[int, Broker] = {}
        self._zookeeper: GuardedProcess | None = None
        self._work: WorkDirectory | None = None
        self._ports: PortLease | None = None
        self._authority: CertificateAuthority | None = None
        self._tls: BrokerTlsFiles | None = None
        self._abandoned = threading.Event()

    @property
    def bootstrap_servers(self) -> str:
        """host:port of every broker, running or not. Raises ProcessError before `start`."""
        return ",".join(f"{ADDRESS}:{broker.node.client_port}" for broker in self._started_brokers())

    @property
    def broker_ids(self) -> Sequence[int]:
        return tuple(self._brokers)

    def broker_pid(self, broker_id: int) -> int | None:
        """None while that broker does not run."""
        return self._broker(broker_id).pid

    def log_file(self, broker_id: int) -> Path:
        """The broker's output; removed by `stop`."""
        return self._broker(broker_id).log_file

    def client_properties(
        self, user: str | None = None, mechanism: SaslMechanism | None = None
    ) -> dict[str, str]:
        """The properties for a Java client: bootstrap.servers, security.protocol, sasl.*, ssl.* (PEM files).

        `user` None = the super user; `mechanism` None = the first of the spec. Raises KeyError for an unknown
        user.
        """
        security = self.spec.security
        name = user or security.super_user
        properties = {"bootstrap.servers": self.bootstrap_servers}
        properties |= client_properties(security, name, mechanism, self._tls)
        if security.client_certificates and self._authority is not None:
            certificate = self._authority.issue_for_user(name)
            properties |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(certificate)}
        return properties

    def client_file(self) -> Path:
        """`client_properties` as a file, readable by the user only; removed by `stop`."""
        name = self.spec.security.super_user
        file = self._started_work.path / f"client-{name}.properties"
        file.touch(mode=0o600)
        file.write_text(render_properties(self.client_properties(name)))
        return file

    def start(self) -> None:
        """Return once every broker serves: 1-2 s, plus a minute if Kafka must be downloaded first.

        Raises ProcessError with the end of the broker's log, FetchError, JavaNotFoundError; then nothing is
        left running.
        """
        try:
            java = find_java()
            image = ensure_image(self.spec.version, java)
            self._prepare(image)
            for broker in self._brokers.values():
                broker.launch()
            self._wait_ready(self._brokers.values())
            if self._zookeeper is not None:
                self.cluster_id = stored_cluster_id(self._brokers[1].node)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every broker at once and delete the data. Idempotent."""
        self._abandoned.set()
        for broker in self._brokers.values():
            if broker.pid is not None:
                broker.kill()
        if self._zookeeper is not None:
            self._zookeeper.kill()
        if self._ports is not None:
            self._ports.release()
        if self._work is not None:
            self._work.remove()

    def abandon(self) -> None:
        """Make a `start` or `restart_broker` in another thread fail soon. From any thread."""
        self._abandoned.set()

    def kill_broker(self, broker_id: int) -> None:
        """SIGKILL; its data and ports stay for `restart_broker`."""
        self._broker(broker_id).kill()

    def stop_broker(self, broker_id: int) -> None:
        """Controlled shutdown; its data and ports stay for `restart_broker`."""
        self._broker(broker_id).stop(_STOP_SECONDS)

    def restart_broker(self, broker_id: int) -> None:
        """Start a killed or stopped broker (a running one is stopped first) on its ports and data; return
        once it serves."""
        broker = self._broker(broker_id)
        broker.stop(_STOP_SECONDS)
        broker.launch()
        self._wait_ready([broker])

    def stop_brokers(self) -> None:
        """Controlled shutdown of every broker at the same time; data and ports stay for `start_brokers`."""
        # One after another, the last ones would wait for a quorum that no longer exists.
        with ThreadPoolExecutor(max_workers=len(self._brokers), thread_name_prefix="stop-broker") as threads:
            for stop in [
                threads.submit(broker.stop, _STOP_SECONDS) for broker in tuple(self._started_brokers())
            ]:
                stop.result()

    def start_brokers(self) -> None:
        """Start every broker that does not run, on its ports and data; return once they serve.

        Raises ProcessError with the end of a broker's log.
        """
        absent = [broker for broker in self._started_brokers() if broker.pid is None]
        for broker in absent:
            broker.launch()
        self._wait_ready(absent)

    def pause_broker(self, broker_id: int) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        self._broker(broker_id).process.pause()

    def resume_broker(self, broker_id: int) -> None:
        self._broker(broker_id).process.resume()

    def cpu_seconds(self) -> float:
        """The CPU time of all running brokers since their starts."""
        return sum(
            broker.process.cpu_seconds() for broker in self._brokers.values() if broker.pid is not None
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _prepare(self, image: BrokerImage) -> None:
        """Ports, directories, certificates, properties, storage: everything except the processes."""
        spec = self.spec
        self._work = WorkDirectory("twinlog-kafka-")
        wanted = (
            () if spec.first_port is None else range(spec.first_port, spec.first_port + spec.broker_count)
        )
        self._ports = PortLease(spec.broker_count * _PORTS_PER_NODE, wanted=wanted)
        if spec.security.tls:
            self._authority = CertificateAuthority(self._work.path)
            self._tls = self._authority.issue_for_brokers()
        nodes = self._places(self._work.path, self._ports.ports)
        for node in nodes:
            node.directory.mkdir()
            properties = render_properties(server_properties(spec, node, nodes, self._tls))
            file = node.directory / "server.properties"
            file.touch(mode=0o600)
            file.write_text(properties)
        checkpoint = self._checkpoint(nodes[0], image)
        if spec.version.has_zookeeper:
            self._zookeeper = start_zookeeper(nodes[0], java=image.java, class_path=image.class_path)
        for node in nodes:
            if not spec.version.has_zookeeper:
                write_formatted(node, spec.version, self.cluster_id, checkpoint)
            command = broker_command(
                spec,
                node,
                java=image.java,
                class_path=image.class_path,
                jvm_options=[*image.jvm_options, *spec.java_options],
            )
            self._brokers[node.node_id] = Broker(node, command)

    def _places(self, directory: Path, ports: Sequence[int]) -> Sequence[NodePlace]:
        """The first ports are the clients'."""
        count = self.spec.broker_count
        return [
            NodePlace(
                node_id=index + 1,
                directory=directory / f"broker-{index + 1}",
                client_port=ports[index],
                internal_port=ports[count + index],
                controller_port=ports[2 * count + index],
            )
            for index in range(count)
        ]

    def _checkpoint(self, node: NodePlace, image: BrokerImage) -> bytes:
        security = self.spec.security
        if not SCRAM_MECHANISMS.intersection(security.mechanisms):
            return image.checkpoint
        return make_checkpoint(
            node, security, java=image.java, class_path=image.class_path, cluster_id=self.cluster_id
        )

    def _wait_ready(self, brokers: Iterable[Broker]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        waiting = list(brokers)
        while True:
            waiting = [broker for broker in waiting if not broker.check_ready()]
            if not waiting:
                return
            if time.monotonic() > deadline:
                names = ", ".join(str(broker.node.node_id) for broker in waiting)
                raise ProcessError(
                    f"cluster {self.spec.name}: broker {names} was not up after {_START_SECONDS:.0f} s"
                )
            if self._abandoned.wait(_POLL_SECONDS):
                raise ProcessError(f"cluster {self.spec.name}: its start was given up")

    @property
    def _started_work(self) -> WorkDirectory:
        if self._work is None:
            raise ProcessError(f"cluster {self.spec.name} was not started")
        return self._work

    def _broker(self, broker_id: int) -> Broker:
        if broker_id not in self._brokers:
            known = ", ".join(map(str, self._brokers)) or "none yet"
            raise ProcessError(f"cluster {self.spec.name} has no broker {broker_id} (brokers: {known})")
        return self._brokers[broker_id]

    def _started_brokers(self) -> Iterable[Broker]:
        if not self._brokers:
            raise ProcessError(f"cluster {self.spec.name} was not started")
        return self._brokers.values()


# Starts and stops several clusters at the same time.


def start_clusters(*specs: ClusterSpec) -> Sequence[BlockingCluster]:
    """Start clusters at the same time and return when all serve. Blocks.

    If one cannot start, the others are stopped and its error is raised.
    """
    clusters = [BlockingCluster(spec) for spec in specs]
    start_all(clusters)
    return clusters


def start_all(clusters: Sequence[BlockingCluster]) -> None:
    """Like `start_clusters`, for clusters whose caller can `abandon` them while they start."""
    with ThreadPoolExecutor(max_workers=len(clusters), thread_name_prefix="start-cluster") as threads:
        starts = [threads.submit(cluster.start) for cluster in clusters]
    try:
        for start in starts:
            start.result()
    except BaseException:
        stop_clusters(clusters)
        raise


def stop_clusters(clusters: Sequence[BlockingCluster]) -> None:
    """Stop all clusters. Blocks for a short time."""
    for cluster in clusters:
        cluster.stop()


async def start_in_thread(clusters: Sequence[BlockingCluster]) -> None:
    """As `start_all`. Cancelled, it leaves nothing running."""
    running = asyncio.get_running_loop().run_in_executor(None, start_all, clusters)
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        # A thread can only be asked to end: wait for it, so that nothing starts after this returns.
        for cluster in clusters:
            cluster.abandon()
        await asyncio.wait([running])
        running.exception()  # The expected result of our own request.
        stop_clusters(clusters)  # It may have succeeded just then.
        raise

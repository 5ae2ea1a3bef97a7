"""Owns named clusters for `twinlog local`, in the foreground or as a process of its own.

As a program (`python -m twinlog.local.owner`) it reads its specs as JSON from stdin, so that passwords appear
neither in a process list nor in a file.
"""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from twinlog.errors import TwinlogError
from twinlog.local import registry
from twinlog.local.blocking_cluster import BlockingCluster, start_all
from twinlog.local.processes.process import ProcessError, last_lines
from twinlog.local.registry import BrokerState, ClusterEntry, OwnerRequest, RunningBroker, RunningCluster
from twinlog.local.spec import ClusterSpec, FarListener, KafkaVersion, SaslMechanism, Security

# One cluster of `twinlog local` on its owner's side: carries out requests and publishes the cluster's
# state.


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


_WATCH_SECONDS = 0.2
_START_SECONDS = 300.0


def own_clusters(specs: Sequence[ClusterSpec], on_ready: Callable[[Sequence[RunningCluster]], None]) -> None:
    """Start the clusters, call `on_ready`, and run them until SIGINT, SIGTERM, or a request to end for each.

    A broker that dies is reported on stderr and to callers that ask. Nothing else happens: its data stay, and
    the others keep running.

    For the main thread. Raises ConflictError when a name is taken, and the errors of a start. No cluster is
    left running.
    """
    clusters = [BlockingCluster(spec) for spec in specs]
    stop = threading.Event()

    def end() -> None:
        stop.set()
        for cluster in clusters:
            cluster.abandon()

    with ExitStack() as held, _on_signals(end):
        entries = [held.enter_context(registry.claim(spec.name)) for spec in specs]
        for cluster in clusters:
            held.callback(cluster.stop)
        try:
            start_all(clusters)
        except TwinlogError:
            if stop.is_set():
                return
            raise
        owned = [
            OwnedCluster(cluster, entry, tell=_tell) for cluster, entry in zip(clusters, entries, strict=True)
        ]
        on_ready([each.publish() for each in owned])
        _watch(owned, stop)


def detach_owner(specs: Sequence[ClusterSpec], log_file: Path) -> Sequence[RunningCluster]:
    """Start a process that owns the clusters and outlives this one; return when they serve.

    Raises ProcessError with the end of the process's log when it fails.
    """
    with log_file.open("wb") as log:
        owner = subprocess.Popen(
            [sys.executable, "-m", "twinlog.local.owner"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    assert owner.stdin is not None
    with owner.stdin as told:
        told.write(json.dumps([asdict(spec) for spec in specs]).encode())
    deadline = time.monotonic() + _START_SECONDS
    while True:
        running = [cluster for spec in specs if (cluster := registry.find_running(spec.name)) is not None]
        if len(running) == len(specs):
            return running
        if owner.poll() is not None:
            raise ProcessError(
                last_lines(log_file, 15) or f"the clusters' owner ended with {owner.returncode}"
            )
        if time.monotonic() > deadline:
            owner.terminate()
            raise ProcessError(f"the clusters were not up after {_START_SECONDS:.0f} s: see {log_file}")
        time.sleep(_WATCH_SECONDS)


def spec_from_json(content: Mapping[str, Any]) -> ClusterSpec:
    """The inverse of `asdict`."""
    security = content["security"]
    mechanisms = tuple(SaslMechanism(name) for name in security["mechanisms"])
    return ClusterSpec(
        **{
            **content,
            "java_options": tuple(content.get("java_options", ())),
            "version": KafkaVersion(content["version"]),
            "security": Security(**{**security, "mechanisms": mechanisms}),
            "far": FarListener(**content["far"]) if content.get("far") else None,
        }
    )


def _watch(owned: list[OwnedCluster], stop: threading.Event) -> None:
    while owned and not stop.wait(_WATCH_SECONDS):
        owned = [each for each in owned if each.look()]


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


@contextmanager
def _on_signals(act: Callable[[], None]) -> Iterator[None]:
    before = {
        number: signal.signal(number, lambda *_: act())
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main() -> int:
    specs = [spec_from_json(content) for content in json.load(sys.stdin)]
    try:
        own_clusters(specs, on_ready=lambda _: None)
    except TwinlogError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

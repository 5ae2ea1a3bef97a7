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
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.cluster_group import start_all
from twinlog.local.owned_cluster import OwnedCluster
from twinlog.local.processes.log_tail import last_lines
from twinlog.local.processes.process import ProcessError
from twinlog.local.registry import RunningCluster
from twinlog.local.spec import ClusterSpec, FarListener, KafkaVersion, SaslMechanism, Security

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

"""What the programs that break things have in common: how they begin and end, and what they kill."""

import argparse
import asyncio
import json
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import psutil

from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.port_lease import PortLease
from twinlog.local.spec import ClusterSpec, FarListener
from twinlog.testing.brokers import start_clusters, stop_clusters


@dataclass(slots=True, kw_only=True)
class Outcome:
    seed: int
    kills: Counter[str] = field(default_factory=Counter)
    records: int = 0
    aborted: int = 0
    """Of the source: transactions, or records of them."""

    @property
    def is_good(self) -> bool:
        raise NotImplementedError

    def as_json(self) -> str:
        return json.dumps({each.name: getattr(self, each.name) for each in fields(self)})


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n\n")[0])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    return parser


def play(
    game: Callable[[Sequence[BlockingCluster], Path], Coroutine[Any, Any, Outcome]], *specs: ClusterSpec
) -> int:
    """A game on clusters of its own, and in a directory; prints the outcome. Returns the exit code."""
    clusters = start_clusters(*specs)
    try:
        with tempfile.TemporaryDirectory(prefix="twinlog-chaos-") as directory:
            outcome = asyncio.run(game(clusters, Path(directory)))
    finally:
        stop_clusters(clusters)
    sys.stdout.write(outcome.as_json() + "\n")
    return 0 if outcome.is_good else 1


def far_listener() -> FarListener:
    """Its ports are kept until this process ends."""
    port, advertised_port = PortLease(2).ports
    return FarListener(port=port, advertised_port=advertised_port)


def processes(pid: int) -> tuple[list[psutil.Process], list[psutil.Process]]:
    """Spark's JVM and the Python workers under a service."""
    try:
        family = psutil.Process(pid).children(recursive=True)
        jvms = [member for member in family if member.name() == "java"]
        daemons = {
            member.pid
            for member in family
            if member.name() != "java" and (parent := member.parent()) is not None and parent.name() == "java"
        }
        return jvms, [member for member in family if member.ppid() in daemons]
    except psutil.Error:
        return [], []


def kill(victim: psutil.Process) -> None:
    signal_to(victim, signal.SIGKILL)


def signal_to(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return

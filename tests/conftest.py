"""Fixtures for every tier: real brokers once per run, names of one's own, clean event loops."""

import asyncio
import inspect
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tiers import tier_of
from together import Together
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import ClusterSpec, SaslMechanism, Security
from twinlog.testing.brokers import TESTED_KAFKA, KafkaPair, start_clusters, stop_clusters, unique_name

_BROKER_FIXTURES = {"kafka_pair", "tls_cluster", "sasl_cluster", "start_cluster"}
ALICE_PASSWORD = 'alice\'s ;secret="quoted" \\ $'
_UNIT_TESTS = Path(__file__).parent / "unit"
_LEAK_GRACE_SECONDS = 5.0

# As the Makefile does for `make`: where it is set, each worker compiles and rewrites hundreds of files again.
# That is more than all unit tests take.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_configure() -> None:
    """Under `nohup`, and in the background of a shell, all children would be deaf to signals that tests send
    them.
    """
    for number, handler in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Together:
    return Together(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say which target runs a test; mark what needs brokers, and refuse it among the unit tests."""
    for item in items:
        by_hypothesis = hasattr(getattr(item, "function", None), "is_hypothesis_test")
        item.add_marker("properties" if by_hypothesis else tier_of(item.nodeid))
        if _BROKER_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
            continue
        if item.path.is_relative_to(_UNIT_TESTS):
            raise pytest.UsageError(f"{item.nodeid} is a unit test and asks for real brokers")
        item.add_marker(pytest.mark.broker)


@pytest.fixture(scope="session")
def kafka_pair() -> Iterator[KafkaPair]:
    """Clusters A and B, one broker each, started at the first use and shared by the whole run."""
    # Tests write records of long ago; by default retention looks for those every five minutes.
    keep = {"log.retention.check.interval.ms": "86400000"}
    clusters = start_clusters(
        *(ClusterSpec(name=name, version=TESTED_KAFKA, properties=keep) for name in ("A", "B"))
    )
    yield KafkaPair(a=clusters[0], b=clusters[1])
    stop_clusters(clusters)


@pytest.fixture(scope="session")
def tls_cluster() -> Iterator[BlockingCluster]:
    """TLS, every SASL mechanism, users `super` and `alice`, and an authorizer."""
    security = Security(
        tls=True,
        mechanisms=(SaslMechanism.SCRAM_SHA_512, SaslMechanism.SCRAM_SHA_256, SaslMechanism.PLAIN),
        users={"alice": ALICE_PASSWORD},
        authorizer=True,
    )
    clusters = start_clusters(ClusterSpec(name="tls", security=security))
    yield clusters[0]
    stop_clusters(clusters)


@pytest.fixture(scope="session")
def sasl_cluster() -> Iterator[BlockingCluster]:
    """SASL PLAIN without TLS, and an authorizer."""
    security = Security(mechanisms=(SaslMechanism.PLAIN,), authorizer=True)
    clusters = start_clusters(ClusterSpec(name="sasl", version=TESTED_KAFKA, security=security))
    yield clusters[0]
    stop_clusters(clusters)


@pytest.fixture
def start_cluster() -> Iterator[Callable[[ClusterSpec], BlockingCluster]]:
    """Start clusters of the test's own, which it may break; they are stopped with it."""
    started: list[BlockingCluster] = []

    def start(spec: ClusterSpec) -> BlockingCluster:
        (cluster,) = start_clusters(spec)
        started.append(cluster)
        return cluster

    yield start
    stop_clusters(started)


@pytest.fixture
def unique_topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses. For several: `twinlog.testing.brokers.unique_name`."""
    return unique_name(request.node.name.removeprefix("test_"))


@pytest.fixture(autouse=True)
def _clean_event_loop(request: pytest.FixtureRequest) -> None:
    """For coroutine tests only: others have no event loop, and shall not get one by this."""
    if inspect.iscoroutinefunction(inspect.unwrap(getattr(request, "function", lambda: None))):
        request.getfixturevalue("_nothing_left_in_the_event_loop")


@pytest.fixture
async def _nothing_left_in_the_event_loop() -> AsyncIterator[None]:
    """Fail a test that leaves tasks running or errors unseen. Torn down after its other fixtures."""
    loop = asyncio.get_running_loop()
    unhandled: list[dict[str, Any]] = []

    def see(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # gRPC has one queue of events for all loops of a process: this one was for the loop of a former test.
        if "PollerCompletionQueue._handle_events" not in context["message"]:
            unhandled.append(context)

    loop.set_exception_handler(see)
    yield
    # By the wall's clock: threads of gRPC end its calls, and do not know the virtual time of the loop.
    ends_at = time.monotonic() + _LEAK_GRACE_SECONDS
    while (left := asyncio.all_tasks() - {asyncio.current_task()}) and time.monotonic() < ends_at:
        await asyncio.wait(left, timeout=0.001)
    assert not left, f"tasks left running: {sorted(task.get_name() for task in left)}"
    assert not unhandled, f"errors nobody looked at: {unhandled}"

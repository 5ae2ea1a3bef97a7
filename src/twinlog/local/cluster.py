"""A cluster of real brokers for asyncio. `blocking_cluster.py` does the work, in threads."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import ClusterSpec, SaslMechanism

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


class LocalCluster:
    """Real brokers on free loopback ports, as an async context manager or with `start` and `stop`.

    They end with this process, however it ends. A cancelled start leaves nothing running.
    """

    def __init__(self, spec: ClusterSpec | None = None) -> None:
        self.blocking = BlockingCluster(spec)

    @property
    def spec(self) -> ClusterSpec:
        return self.blocking.spec

    @property
    def cluster_id(self) -> str:
        return self.blocking.cluster_id

    @property
    def bootstrap_servers(self) -> str:
        """host:port of every broker, running or not. Raises ProcessError before `start`."""
        return self.blocking.bootstrap_servers

    def client_properties(
        self, user: str | None = None, mechanism: SaslMechanism | None = None
    ) -> dict[str, str]:
        """See BlockingCluster.client_properties."""
        return self.blocking.client_properties(user, mechanism)

    async def start(self) -> None:
        """Return once every broker serves. Raises as BlockingCluster.start."""
        try:
            await self._in_thread(self.blocking.start)
        except asyncio.CancelledError:
            # It may have succeeded just then.
            self.blocking.stop()
            raise

    async def stop(self) -> None:
        """End every broker at once and delete the data. Idempotent."""
        await self._in_thread(self.blocking.stop)

    async def kill_broker(self, broker_id: int) -> None:
        """SIGKILL; its data and ports stay for `restart_broker`."""
        await self._in_thread(lambda: self.blocking.kill_broker(broker_id))

    async def stop_broker(self, broker_id: int) -> None:
        """Controlled shutdown; its data and ports stay for `restart_broker`."""
        await self._in_thread(lambda: self.blocking.stop_broker(broker_id))

    async def restart_broker(self, broker_id: int) -> None:
        """Start a killed or stopped broker on its ports and data; return once it serves."""
        await self._in_thread(lambda: self.blocking.restart_broker(broker_id))

    def pause_broker(self, broker_id: int) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        self.blocking.pause_broker(broker_id)

    def resume_broker(self, broker_id: int) -> None:
        self.blocking.resume_broker(broker_id)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _in_thread(self, work: Callable[[], None]) -> None:
        running = asyncio.get_running_loop().run_in_executor(None, work)
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            # A thread can only be asked to end: wait for it, so that nothing starts after this returns.
            self.blocking.abandon()
            await asyncio.wait([running])
            running.exception()  # The expected result of our own request.
            raise

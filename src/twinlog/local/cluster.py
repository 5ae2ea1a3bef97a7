"""Starts and stops several clusters at the same time."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import ClusterSpec


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

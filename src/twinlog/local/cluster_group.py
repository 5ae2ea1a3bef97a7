"""Starts and stops several clusters at the same time."""

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

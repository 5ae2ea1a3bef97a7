"""A short run of the crash tests; `make chaos` and `make chaos-models` run long ones."""

from collections.abc import Callable
from pathlib import Path

from chaos.model_chaos import play
from chaos.source_chaos import run_chaos
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import ClusterSpec


async def test_a_few_kills_lose_and_repeat_nothing(
    start_cluster: Callable[[ClusterSpec], BlockingCluster], tmp_path: Path
) -> None:
    source, target = start_cluster(ClusterSpec(name="A")), start_cluster(ClusterSpec(name="B"))
    outcome = await run_chaos(source, target, tmp_path, seed=33, kills=6, longest_pause_seconds=2.0)
    assert outcome.identical, outcome.as_json()


def test_histories_of_every_model_end_as_they_should() -> None:
    assert play(range(10_000, 10_005)) == []

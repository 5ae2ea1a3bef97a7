"""What Spark does that runs nothing else than what a test says."""

from typing import Any

from twinlog.model import Flow
from twinlog.transforms.expressions import Expressions
from twinlog_source.driver.epoch_rules import Need
from twinlog_source.records.pipe import PipeJob


class WarmSpark:
    spark_ui = ""
    is_up = True

    def warm_up(self, *, is_owner: bool = True) -> None:
        """It is warm."""

    async def rest(self) -> None:
        """It stays warm."""

    async def cluster_cores(self) -> int | None:
        raise AssertionError

    async def check_expressions(self, flow: Flow, expressions: Expressions) -> None:
        raise AssertionError

    async def run_pipe(self, flow: Flow, expressions: Expressions, job: PipeJob) -> None:
        raise AssertionError


class OneCore:
    workers: Any = WarmSpark()

    def warm_up(self, flow: Flow, *, is_owner: bool) -> None:
        """It is warm."""

    async def claim(self, flow: Flow, need: Need) -> int:
        return 1

    def share(self, flow: Flow, need: Need | None) -> int:
        return 1

    def is_crowded(self) -> bool:
        return False

    def was_awake(self, seconds: float) -> bool:
        return True

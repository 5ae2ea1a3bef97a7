"""What the tasks of a verification on Spark ask the process that started them."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from twinlog.errors import TransientKafkaError
from twinlog.service.waiting import wait_or_stop
from twinlog.testing.mirror_logs import SOURCE
from twinlog.verify.comparing.sides import Extended
from twinlog_source.verify.proving.desk import DeskClient
from twinlog_source.verify.proving.spark_task import ask_to_extend


@dataclass(eq=False)
class Connection:
    """A task's connection; in memory."""

    answer: Callable[[dict[str, Any]], Any]
    seconds: float
    """How long an answer takes."""
    reader: asyncio.StreamReader = field(default_factory=asyncio.StreamReader)
    asked: list[str] = field(default_factory=list)
    closed: bool = False

    def write(self, line: bytes) -> None:
        if line.startswith(b"{"):
            told = json.loads(line)
            self.asked.append(told["ask"])
            asyncio.get_running_loop().call_later(self.seconds, self._tell, told)

    def _tell(self, asked: dict[str, Any]) -> None:
        self.reader.feed_data(json.dumps({"answer": self.answer(asked)}).encode() + b"\n")

    async def drain(self) -> None: ...

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


@dataclass(eq=False)
class Server:
    """Answers on every connection; the first one may be slow."""

    answer: Callable[[dict[str, Any]], Any]
    seconds: list[float]
    connections: list[Connection] = field(default_factory=list)

    async def connect(
        self, host: str, port: int, *, limit: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self.connections.append(Connection(self.answer, self.seconds.pop(0)))
        return self.connections[-1].reader, cast("asyncio.StreamWriter", self.connections[-1])

    def client(self) -> DeskClient:
        return DeskClient(endpoint=("desk", 1), token="token", connect=self.connect)


def what_is_asked(asked: dict[str, Any]) -> str:
    return f"of {asked['ask']}"


async def test_an_answer_that_comes_too_late_is_not_taken_for_the_next_one() -> None:
    server = Server(what_is_asked, [200.0, 1.0])
    async with server.client() as desk:
        with pytest.raises(TransientKafkaError, match="does not answer"):
            await desk.ask("extend")
        await wait_or_stop(asyncio.Event(), 100)
        assert await desk.ask("time") == "of time"
    assert [each.asked for each in server.connections] == [["extend"], ["time"]]
    assert all(each.closed for each in server.connections)


async def test_the_answer_to_a_question_that_was_given_up_is_not_taken_for_the_next_one() -> None:
    async with Server(what_is_asked, [1.0, 1.0]).client() as desk:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await desk.ask("extend")
        await wait_or_stop(asyncio.Event(), 1)
        assert await desk.ask("time") == "of time"


async def test_a_part_on_spark_waits_for_its_copy_longer_than_for_an_answer() -> None:
    answers = [None] * 10 + [{"limit": 60, "position": 61}]
    server = Server(lambda asked: answers.pop(0), [30.0])
    began_at = asyncio.get_running_loop().time()
    async with server.client() as desk:
        found = await ask_to_extend(desk, SOURCE, at=50, limit=50)
    assert found == Extended(target_limit=60, position=61)
    assert asyncio.get_running_loop().time() - began_at == 330
    assert [each.asked for each in server.connections] == [["extend"] * 11]

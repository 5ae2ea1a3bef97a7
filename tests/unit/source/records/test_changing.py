"""What becomes of the records of a fetch, against row by row in Python: also where the pipe breaks."""

import asyncio
from array import array
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twinlog.batches.bodies import DecodedRecord, OpenRecord, encode_body
from twinlog.batches.header import read_batch
from twinlog.batches.outgoing import Seal, sealed
from twinlog.batches.records import decode_batch
from twinlog.errors import StateError, TransientKafkaError, WireFormatError
from twinlog.kafka.deadline import pause
from twinlog.model import TopicPartition
from twinlog.transforms.expressions import COLUMNS, Expressions, OnError
from twinlog_source.records.changing import Changing
from twinlog_source.records.dead_letters import DeadLetters
from twinlog_source.records.frames import (
    PASSED,
    Back,
    Buffer,
    ChunkOut,
    Returned,
    decode_buffers,
    encode_buffers,
    encode_chunk,
)
from twinlog_source.records.pipe import TransformFailedError

PYTHON = Expressions(topics=("t",), python="a:b")
SKIPPING = replace(PYTHON, on_error=OnError.SKIP)
DROP, FAIL, BREAK, EU = b"drop", b"fail", b"break", b"eu"


@dataclass
class FakePipe:
    """Loses every chunk that is in it when a record breaks it."""

    break_seconds: float = 0.0
    breaks_always: bool = False
    killed_at: Collection[int] = ()
    """The calls during which somebody kills its worker."""
    inside: list[asyncio.Event] = field(default_factory=list)
    calls: int = 0

    async def run(self) -> None: ...

    async def change(self, partition: TopicPartition, records: Sequence[OpenRecord]) -> Back:
        del partition
        self.calls += 1
        call = self.calls
        lost = asyncio.Event()
        self.inside.append(lost)
        await pause(0.01 * (1 + len(records) % 3))
        if any(BREAK in body for _, _, body in records):
            await pause(self.break_seconds)
        self.inside.remove(lost)
        if call in self.killed_at or self.breaks_always or any(BREAK in body for _, _, body in records):
            for other in self.inside:
                other.set()
            lost.set()
        if lost.is_set():
            raise TransformFailedError("it broke")
        kept = [record for record in records if DROP not in record[2]]
        return Back(
            passed=[(offset, ms + 1, body + b"!") for offset, ms, body in kept if FAIL not in body],
            failed={offset: 1 for offset, _, body in kept if FAIL in body},
            routes={offset: "eu" for offset, _, body in kept if EU in body},
        )


def changing_in(
    group: asyncio.TaskGroup,
    *,
    pipe: FakePipe | None = None,
    alone: FakePipe | None = None,
    strict: FakePipe | None = None,
    expressions: Expressions = PYTHON,
    tries_again: bool = False,
) -> Changing:
    return Changing(
        group=group,
        expressions=expressions,
        source="A",
        pipe=pipe or FakePipe(),
        alone=alone or FakePipe(),
        strict=strict or FakePipe(),
        tries_again=tries_again,
    )


async def in_group(run: Callable[[asyncio.TaskGroup], Awaitable[None]]) -> None:
    async with asyncio.TaskGroup() as group:
        await run(group)


def _expected(records: Sequence[OpenRecord], on_error: OnError) -> tuple[list[OpenRecord], int, int | None]:
    """What is copied, how many are dropped, and at which offset the partition stops."""
    passed: list[OpenRecord] = []
    dropped = 0
    for offset, ms, body in records:
        if FAIL in body or BREAK in body:
            if on_error is OnError.STOP:
                return passed, dropped, offset
        elif DROP in body:
            dropped += 1
        else:
            passed.append((offset, ms + 1, body + b"!"))
    return passed, dropped, None


async def test_others_go_on_while_a_record_that_takes_too_long_is_looked_for() -> None:
    async with asyncio.TaskGroup() as group:
        changing = changing_in(group, alone=FakePipe(break_seconds=60))
        records = [(n, n, BREAK if n == 700 else b"a") for n in range(1000)]
        now = asyncio.get_running_loop().time

        async def others() -> float:
            for number in range(10):
                await changing.change(TopicPartition("t", 1), [(number, 0, b"a")])
            return now()

        async with asyncio.TaskGroup() as both:
            stopping = both.create_task(changing.change(TopicPartition("t", 0), records), name="stops")
            went_on = both.create_task(others(), name="others")
        assert list(stopping.result().failed) == [700]
        assert went_on.result() < 121
        assert now() > 500
        began, pipe = now(), changing.pipe
        assert isinstance(pipe, FakePipe)
        calls = pipe.calls
        again = await changing.change(TopicPartition("t", 0), records[600:])
        assert (list(again.failed), pipe.calls) == ([700], calls)
        assert now() - began < 61


@pytest.mark.parametrize("on_error", OnError)
async def test_no_record_is_left_out_where_the_function_fails_without_one(on_error: OnError) -> None:
    async with asyncio.TaskGroup() as group:
        pipe = FakePipe(breaks_always=True)
        expressions = replace(PYTHON, on_error=on_error)
        changing = changing_in(group, pipe=pipe, alone=pipe, strict=pipe, expressions=expressions)
        for _ in range(2):
            with pytest.raises(StateError, match="python: fails without a record") as refused:
                await changing.change(TopicPartition("t", 0), [(0, 0, b"a"), (1, 0, b"b")])
            assert refused.value.reason == "TRANSFORM_REFUSED"


@pytest.mark.parametrize("killed", [{1}, {2}, {3, 4}, {4, 5}])
async def test_a_worker_that_is_killed_is_no_verdict_on_the_record_that_it_had(killed: set[int]) -> None:
    async with asyncio.TaskGroup() as group:
        changing = changing_in(
            group,
            alone=FakePipe(killed_at=killed),
            expressions=SKIPPING,
        )
        bodies = [b"a", BREAK, b"b", b"c"]
        changed = await changing.change(
            TopicPartition("t", 0), [(n, 0, each) for n, each in enumerate(bodies)]
        )
        assert (list(changed.failed), list(changed.passed)) == ([1], [0, 2, 3])


async def test_nothing_is_concluded_of_records_behind_one_that_stopped_those_who_waited_no_longer() -> None:
    async with asyncio.TaskGroup() as group:
        changing = changing_in(group, alone=FakePipe(break_seconds=5))
        at = TopicPartition("t", 0)
        records = [(n, n, BREAK if n == 7 else b"a") for n in range(20)]
        asked = group.create_task(changing.change(at, records), name="an epoch that ends")
        await pause(1)
        asked.cancel()
        await pause(20)
        # Somebody has set the position behind the record that cannot be changed.
        behind = await changing.change(at, records[8:])
        assert (list(behind.passed), behind.failed) == (list(range(8, 20)), {})


class Away(FakePipe):
    """Has no core for the first two calls."""

    async def change(self, partition: TopicPartition, records: Sequence[OpenRecord]) -> Back:
        if self.calls < 2:
            self.calls += 1
            await pause(60)
            raise TransientKafkaError("no core", reason="NO_FREE_CORE")
        return await super().change(partition, records)


async def test_what_spark_fails_to_change_for_nobody_is_given_up() -> None:
    async with asyncio.TaskGroup() as group:
        pipe = Away()
        changing = changing_in(
            group, pipe=pipe, expressions=Expressions(topics=("t",), where="true"), tries_again=True
        )
        asked = group.create_task(changing.change(TopicPartition("t", 0), [(0, 0, b"a")]), name="moved away")
        await pause(1)
        asked.cancel()
        await pause(200)
        assert (pipe.calls, changing.at_spark, changing.left) == (2, {}, [])


async def test_what_nobody_waited_for_is_there_for_who_asks_for_more_or_less_of_it() -> None:
    async with asyncio.TaskGroup() as group:
        pipe, partition = FakePipe(), TopicPartition("t", 0)
        changing = changing_in(
            group,
            pipe=pipe,
            alone=FakePipe(break_seconds=9),
            expressions=SKIPPING,
        )
        bodies = [b"a", DROP, BREAK, FAIL, EU, EU]
        records = [(n, n, body) for n, body in enumerate(bodies)]
        for asked in (records[:5], records, records[1:]):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(2):
                    await changing.change(partition, asked)
        changed = await changing.change(partition, records[1:])
        assert ([*changed.passed], [*changed.failed]) == ([4, 5], [2, 3])
        assert changed.routes == {4: "eu", 5: "eu"}
        calls = pipe.calls
        assert calls == 2, "the first five, and the sixth"
        # Of another log: nothing of it is known.
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await changing.change(partition, [(1, 0, BREAK)])
        assert [*(await changing.change(partition, [(1, 0, b"a")])).passed] == [1]
        assert not changing.left


_BODIES = st.lists(st.sampled_from([b"a", b"b", b"c", DROP, FAIL, BREAK]), max_size=9)


@given(st.lists(_BODIES, min_size=1, max_size=4), st.sampled_from(OnError))
@settings(max_examples=60, deadline=None)
def test_each_record_becomes_what_it_becomes_alone(chunks: list[list[bytes]], on_error: OnError) -> None:
    async def run(group: asyncio.TaskGroup) -> None:
        pipe = FakePipe()
        changing = changing_in(
            group,
            pipe=pipe,
            strict=pipe,
            expressions=Expressions(topics=("t",), columns=(("value", "…"),), on_error=on_error),
        )
        fetched = [[(7 * n, n, body) for n, body in enumerate(bodies)] for bodies in chunks]
        async with asyncio.TaskGroup() as askers:
            asked = [
                askers.create_task(changing.change(TopicPartition("t", n), records), name=str(n))
                for n, records in enumerate(fetched)
            ]
        for records, answer in zip(fetched, asked, strict=True):
            changed, (passed, dropped, stops_at) = answer.result(), _expected(records, on_error)
            if stops_at is None:
                assert changed.take(records) == passed
                assert len(records) == len(passed) + dropped + len(changed.failed)
            else:
                with pytest.raises(WireFormatError, match=f"offset {stops_at}: ") as stopped:
                    changed.take(records)
                assert stopped.value.reason == "TRANSFORM_FAILED"

    asyncio.run(in_group(run))


_BYTES = st.none() | st.binary(max_size=40) | st.sampled_from([64, 8191, 8192]).map(bytes)
_HEADERS = st.lists(st.tuples(st.text(max_size=3).map(str.encode), _BYTES), max_size=3).map(tuple)
_RECORDS = st.lists(
    st.tuples(st.integers(0, 2**62), st.integers(-1, 2**62), _BYTES, _BYTES, _HEADERS), max_size=5
)


@given(st.lists(_RECORDS, max_size=3), st.frozensets(st.sampled_from(COLUMNS)))
def test_records_are_put_together_of_what_comes_back(
    chunks: list[list[DecodedRecord]], changed: frozenset[str]
) -> None:
    returned = Returned(changed=changed)
    for number, records in enumerate(chunks):
        opened = [
            (offset, ms, encode_body(key, value, headers)) for offset, ms, key, value, headers in records
        ]
        chunk = ChunkOut(number, TopicPartition("ä.b", 7), opened, [])
        rows, topic, partition, offsets, timestamps, *columns = decode_buffers(
            encode_chunk(chunk, changed)[4:]
        )
        assert (bytes(topic).decode(), partition.cast("i")[0]) == chunk.partition
        assert offsets.cast("q").tolist() == [*(record[0] for record in records), 0]
        times: list[Buffer] = [timestamps] if "timestamp" in changed else []
        names = [(None, b"\xc3\xa4.b", b"eu")[at % 3] for at in range(len(records))]
        topics = [
            array("i", [-1 if each is None else len(each) for each in [*names, None]]).tobytes(),
            b"".join(filter(None, names)),
        ]
        times += topics if "topic" in changed else []
        passed = bytes([PASSED % 256] * len(rows.cast("i")))
        (back,) = returned.take(encode_buffers([rows, passed, *columns, *times])[4:], [chunk])
        routes = {record[0]: "eu" for record, name in zip(records, names, strict=True) if name == b"eu"}
        assert back == Back(passed=opened, failed={}, routes=routes if "topic" in changed else {})


@pytest.mark.parametrize("body", [b"", b"\x40v", encode_body(b"k", b"v")[:-1] + b"\x02"])
def test_a_record_that_cannot_be_read_is_a_dead_letter_with_its_bytes(body: bytes) -> None:
    letters = DeadLetters(topic="dead", connector_name="MirrorSourceConnector")
    (batch,) = letters.batches(TopicPartition("orders", 3), {7: "it cannot be read"}, {7: (7, 5, body)})
    found = read_batch(memoryview(sealed(batch, Seal(-1, -1, -1, transactional=False))), 0)
    assert found is not None
    ((_, at_ms, key, value, headers),) = decode_batch(found)
    assert (at_ms, key, value) == (5, None, body)
    assert dict(headers)[b"__connect.errors.offset"] == b"7"

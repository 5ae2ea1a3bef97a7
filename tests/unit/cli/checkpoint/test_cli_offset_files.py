"""Files of offsets that other programs keep."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from twinlog.cli import app
from twinlog.cli.checkpoint.offset_files import FileKind, WantedPlace, parse_place, read_places
from twinlog.errors import ConfigError
from twinlog.model import TopicPartition
from unit.cases import about

SPARK = (
    "v1\n"
    '{"batchWatermarkMs":0,"batchTimestampMs":1705249601108,"conf":{'
    '"spark.sql.streaming.stateStore.providerClass":'
    '"org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",'
    '"spark.sql.streaming.join.stateFormatVersion":"2","spark.sql.shuffle.partitions":"2"}}\n'
    '{"visits":{"1":1276,"0":1224}}'
)
"""offsets/18 of a query with one Kafka source, as Spark 3.5 writes it: no newline at the end."""

SPARK_JOIN = """v1
{"batchWatermarkMs":0,"batchTimestampMs":1480981499528}
0
{"orders":{"1":45,"0":123},"payments":{"0":7}}
-
{"logOffset":3}
{"users":{"0":9}}"""
"""A query that joins a rate source, two topics, a source without offsets yet, files and another topic."""


def place(topic: str, partition: int, offset: int) -> WantedPlace:
    return WantedPlace(partition=TopicPartition(topic, partition), offset=offset)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("orders:3:1234", place("orders", 3, 1234)),
        ("a:b:0:9", place("a:b", 0, 9)),
        (
            "orders:3@2026-01-31T12:00:00Z",
            WantedPlace(partition=TopicPartition("orders", 3), timestamp_ms=1769860800000),
        ),
        (
            "orders:3@2026-01-31T12:00:00",
            WantedPlace(partition=TopicPartition("orders", 3), timestamp_ms=1769860800000),
        ),
    ],
)
def test_places_on_the_command_line(text: str, found: WantedPlace) -> None:
    assert parse_place(text, now_ms=0) == found


TOO_LARGE = "99999999999999999999"
DIGITS = "9" * 5_000


@pytest.mark.parametrize("bad", [f"orders,0,{TOO_LARGE}", "orders,3000000000,5", f"orders,0,{DIGITS}"])
def test_a_number_that_kafka_cannot_hold_is_a_bad_line_among_good_ones(bad: str) -> None:
    file = read_places(f"orders,1,7\n{bad}\norders,2,8\n")
    assert file.places == [place("orders", 1, 7), place("orders", 2, 8)]
    assert [(each.line, len(each.what) < 200) for each in file.bad] == [(2, True)]


def test_a_cell_that_is_too_large_to_be_read_is_a_bad_line() -> None:
    file = read_places(f"orders,1,7\norders,2,{'x' * 200_000}\n{'y' * 200_000}\norders,2,8\n")
    assert file.places == [place("orders", 1, 7), place("orders", 2, 8)]
    assert [each.line for each in file.bad] == [2, 3]


@pytest.mark.parametrize(
    "text",
    [
        '{"a":' * 100_000,
        '{"orders":{"0":' + DIGITS + "}}",
        '{"orders":{"0":' + TOO_LARGE + "}}",
        '{"orders":{"3000000000":1}}',
        "v1\n{}\n" + '{"a":' * 100_000,
        f"partition:0,offset:{TOO_LARGE}",
        f"partition:{DIGITS},offset:1",
    ],
)
def test_a_document_that_holds_no_offset_that_can_be_is_named_and_ends_nothing(text: str) -> None:
    file = read_places(text, topic="orders")
    assert (file.places, len(file.bad)) == ([], 1)
    assert len(file.bad[0].what) < 300


@pytest.mark.parametrize("text", ["orders", "orders:3", "orders:x:1", ":3:1", "orders:3:-1", "orders:3@soon"])
def test_what_is_no_place_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match=r"1234|2026"):
        parse_place(text, now_ms=0)


@pytest.mark.parametrize(
    "text",
    [
        "topic,partition,offset\norders,0,123\norders,1,45\n",
        "orders,0,123\norders,1,45",
        '"orders",0,123\n\n"orders",1,45\n',
        '"my-group","orders",0,123\n"my-group","orders",1,45\n',
        "\ufefftopic,partition,offset\r\norders,0,123\r\norders,1,45\r\n",
        "# exported on Monday\norders,0,123\norders,1,45\n",
    ],
)
def test_csv_as_it_is_written_by_hand_and_by_kafkas_tools(text: str) -> None:
    found = read_places(text)
    assert (found.kind, found.bad) == (FileKind.CSV, [])
    assert found.places == [place("orders", 0, 123), place("orders", 1, 45)]


def test_csv_may_hold_times() -> None:
    found = read_places("orders,0,2026-01-31T12:00:00Z")
    assert found.places == [WantedPlace(partition=TopicPartition("orders", 0), timestamp_ms=1769860800000)]


def test_csv_keeps_its_groups_header_and_comments() -> None:
    text = 'group,topic,partition,offset\n# billing\n"my group","orders",0,123\n\nother,orders,1,45\n'
    written = read_places(text).render([place("A.orders", 0, 130), place("A.orders", 1, 50)])
    assert written == (
        "group,topic,partition,offset\n# billing\nmy group,A.orders,0,130\n\nother,A.orders,1,50\n"
    )


def test_sparks_offset_log_keeps_its_head_and_its_form() -> None:
    found = read_places(SPARK)
    assert (found.kind, found.bad) == (FileKind.SPARK, [])
    assert found.places == [place("visits", 1, 1276), place("visits", 0, 1224)]
    written = found.render([place("A.visits", 1, 1300), place("A.visits", 0, 1250)])
    assert written == SPARK.replace('{"visits":{"1":1276,"0":1224}}', '{"A.visits":{"1":1300,"0":1250}}')


def test_sparks_sources_with_names_keep_them() -> None:
    text = 'v2\n{"batchWatermarkMs":0}\n0:{"visits":{"0":1224}}\nclock:7\nidle:-\norders:{"orders":{"3":5}}'
    found = read_places(text)
    assert (found.kind, found.bad) == (FileKind.SPARK, [])
    assert [(str(place.partition), place.offset) for place in found.places] == [
        ("visits-0", 1224),
        ("orders-3", 5),
    ]
    assert found.render(found.places) == text


def test_sparks_other_sources_stay_where_they_are() -> None:
    found = read_places(SPARK_JOIN)
    assert found.bad == []
    assert [each.partition.topic for each in found.places] == ["orders", "orders", "payments", "users"]
    same = found.render(found.places)
    assert same == SPARK_JOIN
    moved = found.render(
        [place(f"A.{each.partition.topic}", each.partition.partition, 1) for each in found.places]
    )
    lines = moved.splitlines()
    assert (lines[2], lines[4], lines[5]) == ("0", "-", '{"logOffset":3}')
    assert lines[3] == '{"A.orders":{"1":1,"0":1},"A.payments":{"0":1}}'
    assert lines[6] == '{"A.users":{"0":1}}'


@pytest.mark.parametrize(
    "text",
    [
        "topic,partition,offset\norders,0,123\norders,1,45\n",
        '{"orders":{"0":123,"1":45}}\n',
        "partition:0,offset:123;partition:1,offset:45\n",
    ],
)
def test_each_form_writes_back_what_it_read(text: str) -> None:
    found = read_places(text, topic="orders")
    assert found.places == [place("orders", 0, 123), place("orders", 1, 45)]
    assert found.render(found.places) == text


def test_what_is_wrong_is_named_with_its_line_and_the_rest_is_kept() -> None:
    for text, line, what, good in [
        ("orders,0,1\norders,zero,2\norders,2,3\n", 2, "'zero'", 2),
        ("orders,0,1\norders,0\n", 2, "2 columns", 1),
        ("orders,0,1\n,1,2\n", 2, "expected topic", 1),
        ("orders,0,1\norders,1,-5\n", 2, "orders-1: '-5' is neither", 1),
        ("orders,0,1\norders,1,soon\n", 2, "'soon'", 1),
        ('{"orders": {"0": -1, "1": 5}}', 1, "orders-0: -1 (latest)", 1),
        ('{"orders": {"0": -2}}', 1, "orders-0: -2 (earliest)", 0),
        ('{"orders": {"0": 1.5}}', 1, "orders-0: 1.5", 0),
        ('{"orders": {"0": true}}', 1, "orders-0: True", 0),
        ('{"orders": 5}', 1, "topic 'orders'", 0),
        ('{\n"orders": {\n"0": }}', 3, "not JSON", 0),
        ('v1\n{}\n{"users":{"0":1}}\n{"orders"', 4, "not JSON", 1),
        ('v1\n{}\n{"users":{"0":1},"orders":{"0":"x"}}', 3, "orders-0: 'x'", 1),
        ("partition:0,offset:1;partition:1,offset:x", 1, "partition:NUMBER", 1),
    ]:
        with about(text, line, what, good):
            found = read_places(text, topic="orders")
            (bad,) = found.bad
            assert bad.line == line
            assert what in bad.what
            assert len(found.places) == good


def test_every_bad_line_is_named() -> None:
    found = read_places("orders,0,1\nx\norders,1,2\ny\n")
    assert [bad.line for bad in found.bad] == [2, 4]
    assert len(found.places) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("\n \n", "empty"),
        ('v1\n{"nextBatchWatermarkMs":0}', "no Kafka offsets"),
        ("topic,partition,offset\n", "no Kafka offsets"),
        ("partition:0,offset:42", "--topic"),
    ],
)
def test_a_file_without_offsets_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_places(text)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file or directory"),
        (b"\xac\xed\x00\x05", "it is not a text file"),
        (b"", "the file is empty"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_the_reason(
    content: bytes | None, words: str, tmp_path: Path
) -> None:
    file = tmp_path / "offsets"
    if content is not None:
        file.write_bytes(content)
    told = CliRunner().invoke(app, ["translate", "--from", str(file)])
    assert told.exit_code == 2
    assert told.stderr.startswith(f"error: --from {file}: {words}")

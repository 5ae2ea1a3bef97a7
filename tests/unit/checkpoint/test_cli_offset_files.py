"""Files of offsets that other programs keep."""

import pytest

from twinlog.cli.offset_files import FileKind, Place, parse_place, read_places, write_places
from twinlog.errors import ConfigError
from twinlog.model import TopicPartition

SPARK = """v1
{"batchWatermarkMs":0,"batchTimestampMs":1700000000000,"conf":{}}
{"orders":{"1":45,"0":123},"payments":{"0":7}}
-
"""


def place(topic: str, partition: int, offset: int) -> Place:
    return Place(partition=TopicPartition(topic, partition), offset=offset)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("orders:3:1234", place("orders", 3, 1234)),
        ("a:b:0:9", place("a:b", 0, 9)),
        (
            "orders:3@2026-01-31T12:00:00Z",
            Place(partition=TopicPartition("orders", 3), timestamp_ms=1769860800000),
        ),
        (
            "orders:3@2026-01-31T12:00:00",
            Place(partition=TopicPartition("orders", 3), timestamp_ms=1769860800000),
        ),
    ],
)
def test_places_on_the_command_line(text: str, found: Place) -> None:
    assert parse_place(text) == found


@pytest.mark.parametrize("text", ["orders", "orders:3", "orders:x:1", ":3:1", "orders:3:-1", "orders:3@soon"])
def test_what_is_no_place_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match=r"1234|2026"):
        parse_place(text)


@pytest.mark.parametrize(
    "text",
    [
        "topic,partition,offset\norders,0,123\norders,1,45\n",
        "orders,0,123\norders,1,45",
        '"orders",0,123\n\n"orders",1,45\n',
        '"my-group","orders",0,123\n"my-group","orders",1,45\n',
    ],
)
def test_csv_as_it_is_written_by_hand_and_by_kafkas_tools(text: str) -> None:
    assert read_places(text) == (FileKind.CSV, [place("orders", 0, 123), place("orders", 1, 45)])


def test_csv_may_hold_times() -> None:
    _, places = read_places("orders,0,2026-01-31T12:00:00Z")
    assert places == [Place(partition=TopicPartition("orders", 0), timestamp_ms=1769860800000)]


def test_sparks_offset_log_goes_through_and_keeps_its_head() -> None:
    kind, places = read_places(SPARK)
    assert kind is FileKind.SPARK
    assert places == [place("orders", 1, 45), place("orders", 0, 123), place("payments", 0, 7)]
    written = write_places(kind, SPARK, [place("A.orders", 1, 50), place("A.orders", 0, 130)])
    assert written.splitlines()[:2] == SPARK.splitlines()[:2]
    assert read_places(written)[1] == [place("A.orders", 0, 130), place("A.orders", 1, 50)]


@pytest.mark.parametrize("kind", [FileKind.CSV, FileKind.JSON, FileKind.FLINK])
def test_each_form_reads_back_what_it_writes(kind: FileKind) -> None:
    places = [place("orders", 0, 123), place("orders", 1, 45)]
    assert read_places(write_places(kind, "", places), topic="orders") == (kind, places)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("orders,0,1\norders,zero,2\n", "line 2"),
        ("orders,0,1\norders,0\n", "line 2"),
        ('{"orders": {"0": -1}}', "orders-0"),
        ('{"orders": 5}', "orders"),
        ('v1\n{}\n{"orders"', "line 3"),
        ("partition:0,offset:x", "partition:NUMBER"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_places(text, topic="orders")


def test_flinks_form_needs_the_topic() -> None:
    with pytest.raises(ConfigError, match="--topic"):
        read_places("partition:0,offset:42")

"""What takes a command back is the last line of its output."""

from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as configsync
from twinlog.api.source.v1 import source_service_pb2 as source
from twinlog.cli.common.pasteable import MOST_SHOWN, undo_lines
from twinlog.cli.configsync.rules import undo_of_change
from twinlog.cli.source.client import parse_scope
from twinlog.cli.source.pause import undo_of_resume, undo_of_throttle
from twinlog.cli.source.positions import undo_of_moves

FLOW = types_pb2.Flow(source="A", target="B")


def test_one_is_a_line_and_many_are_a_list_that_ends() -> None:
    assert undo_lines([]) == []
    assert undo_lines(["a"]) == ["undo: a"]
    assert undo_lines(["a", "b"]) == ["undo:", "  a", "  b"]
    many = undo_lines([str(number) for number in range(MOST_SHOWN + 2)])
    assert many[-1] == "  and 2 more: -o json has all of them"


def test_a_resume_is_taken_back_by_the_pauses_that_it_ended() -> None:
    before = [
        source.Pause(scope=parse_scope("A->B", topic, partition))
        for topic, partition in (("", None), ("orders", None), ("orders", 3))
    ]
    assert undo_of_resume(before, before[:1]) == [
        "twinlog pause 'A->B' --topic orders",
        "twinlog pause 'A->B' --topic orders --partition 3",
    ]


def test_a_limit_is_taken_back_by_the_one_before() -> None:
    topic, flow = parse_scope("A->B", "orders", None), parse_scope("A->B", "", None)
    before = [source.Throttle(scope=topic, bytes_per_second=500_000)]
    assert undo_of_throttle(topic, before, 0) == ["twinlog throttle 'A->B' 500000 --topic orders"]
    assert undo_of_throttle(flow, before, 7) == ["twinlog throttle 'A->B' none"]
    assert undo_of_throttle(topic, before, 500_000) == []


def test_moved_partitions_are_moved_back_where_it_is_known_where_they_were() -> None:
    def change(partition: int, begin: int, *, applied: bool = True) -> source.PositionChange:
        where = types_pb2.TopicPartition(topic="orders", partition=partition)
        return source.PositionChange(partition=where, from_offset=begin, to_offset=5, applied=applied)

    filled = change(4, 2)
    filled.fills_offsets = True
    changes = [change(0, 28), change(1, -1), change(2, 30, applied=False), change(3, 5), filled]
    assert undo_of_moves("A->B", changes) == [
        "twinlog positions set 'A->B' --topic orders --partition 0 --to 28"
    ]


def test_a_rule_goes_back_to_its_value_or_to_the_file() -> None:
    def rules(value: str, *, changed: bool) -> configsync.Rules:
        return configsync.Rules(
            flow=FLOW, rules=[configsync.Rule(key="topics", value=value, changed=changed, file_value=".*")]
        )

    file, one, two = rules(".*", changed=False), rules("a b", changed=True), rules("c", changed=True)
    assert undo_of_change(file, one, "topics") == ["twinlog rules reset 'A->B' topics"]
    assert undo_of_change(one, two, "topics") == ["twinlog rules set 'A->B' topics 'a b'"]
    assert undo_of_change(one, file, "topics") == ["twinlog rules set 'A->B' topics 'a b'"]
    assert undo_of_change(one, one, "topics") == []

"""What a watch of partitions adds up to."""

from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.cli.source.watched_partitions import KnownPartitions


def status(topic: str, position: int = 0) -> pb2.PartitionStatus:
    return pb2.PartitionStatus(
        flow=types_pb2.Flow(source="A", target="B"),
        source=types_pb2.TopicPartition(topic=topic),
        position=position,
    )


def test_a_snapshot_replaces_what_is_known_only_when_it_is_complete() -> None:
    known = KnownPartitions()
    for topics in (["b", "a"], ["c", "b"]):
        before = known.sorted()
        known.begin()
        items = pb2.PartitionStatuses(partitions=[status(topic) for topic in topics])
        assert known.take(pb2.WatchPartitionsResponse(snapshot_items=items)) is None
        assert known.sorted() == before
        told = known.take(pb2.WatchPartitionsResponse(snapshot_end=pb2.PartitionsSnapshotEnd()))
        assert told is not None
        assert [each.source.topic for each in known.sorted()] == sorted(topics)
        assert [each.source.topic for each in told.removed] == [each for each in ("a",) if "c" in topics]


def test_changes_are_told_and_what_was_never_known_is_not_told_as_gone() -> None:
    known = KnownPartitions()
    known.take(pb2.WatchPartitionsResponse(snapshot_end=pb2.PartitionsSnapshotEnd()))
    changes = pb2.PartitionChanges(changed=[status("a", 7)], removed=[status("never")])
    told = known.take(pb2.WatchPartitionsResponse(changes=changes))
    assert told is not None
    assert ([each.position for each in told.changed], list(told.removed)) == ([7], [])
    assert known.take(pb2.WatchPartitionsResponse(progress=types_pb2.Progress())) is None

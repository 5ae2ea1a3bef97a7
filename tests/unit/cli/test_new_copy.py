"""The topic of a copy that is made again is paused from the deletion on until it is copied from the start."""

from twinlog.cli.verify.repairing import Pause, Repaired, make_again
from twinlog.errors import FatalKafkaError, KafkaError, StateError, TransientKafkaError
from twinlog.kafka.ports import NewTopic, TopicDescription
from twinlog.testing.fakes.cluster import Call, FakeCluster
from twinlog.verify.repair import Remedy, remedies

COPY = "A.orders"


def remedy() -> Remedy:
    place = {"topic": "orders", "partition": 0}
    (found,) = remedies(
        {
            "flow": "A->B",
            "partitions": [{**place, "target_topic": COPY, "target_compacted": False}],
            "differences": [{**place, "kind": "FOREIGN", "source_offset": 3, "target_offset": 3, "count": 1}],
        }
    )
    return found


async def cluster() -> FakeCluster:
    made = FakeCluster("B")
    settings = {"retention.ms": "1000"}
    new = NewTopic(name=COPY, partition_count=3, replication_factor=1, configs=settings)
    assert await made.create_topics([new]) == {COPY: None}
    return made


async def topic_id(target: FakeCluster) -> str:
    found = (await target.describe_topics([COPY]))[COPY]
    assert isinstance(found, TopicDescription)
    return found.topic_id


async def made_again(target: FakeCluster, pause: Pause, failure: Exception | None = None) -> Repaired:
    async def set_to_start(made: str) -> None:
        assert pause.left_to_do, "it stays paused, whatever happens"
        assert made == await topic_id(target)
        if failure is not None:
            raise failure

    return await make_again(target, remedy(), pause, set_to_start)


async def test_a_new_copy_has_the_settings_of_the_one_before_and_nothing_is_left_to_do() -> None:
    target, pause = await cluster(), Pause()
    before = await topic_id(target)
    assert await made_again(target, pause) == Repaired(applied=True)
    assert not pause.left_to_do
    assert await topic_id(target) != before
    entries = (await target.describe_topic_configs([COPY]))[COPY]
    assert not isinstance(entries, KafkaError)
    assert {entry.name: entry.value for entry in entries}["retention.ms"] == "1000"


async def test_a_failure_behind_the_deletion_leaves_the_topic_paused_and_says_what_to_do() -> None:
    target, pause = await cluster(), Pause()
    done = await made_again(target, pause, StateError("no", reason="WRONG_STATE"))
    assert (done.applied, done.reason) == (False, "WRONG_STATE")
    assert pause.left_to_do, "the pause stays"
    for command in ("positions set 'A->B' --topic orders --to earliest", "resume 'A->B' --topic orders"):
        assert command in done.message


async def test_a_deletion_that_is_refused_leaves_nothing_to_do() -> None:
    target, pause = await cluster(), Pause()

    def refuse(_: Call) -> None:
        raise FatalKafkaError("not allowed", reason="TOPIC_AUTHORIZATION_FAILED")

    target.hooks.add("delete_topics", refuse, after=False)
    before = await topic_id(target)
    done = await made_again(target, pause)
    assert (done.applied, done.reason) == (False, "TOPIC_AUTHORIZATION_FAILED")
    assert await topic_id(target) == before
    assert not pause.left_to_do, "the copy is there as before: its pause is taken back"


async def test_a_deletion_that_may_still_come_leaves_the_topic_paused() -> None:
    target, pause = await cluster(), Pause()

    def be_silent(_: Call) -> None:
        raise TransientKafkaError("no answer", reason="KAFKA_TIMEOUT")

    target.hooks.add("delete_topics", be_silent, after=True)
    assert await made_again(target, pause) == Repaired(applied=True), "it was deleted all the same"

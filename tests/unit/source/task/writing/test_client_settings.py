"""Client settings of the file, as the tasks of the source service use them."""

import pytest

from twinlog.kafka.clients import fetch_options
from twinlog.model import Flow
from twinlog_source.config import SourceFlow, source_flows
from twinlog_source.driver.stream.task_settings import TaskSettings, every_transactional_id, ids_of_slot
from twinlog_source.log.facts import WriterFact
from twinlog_source.task.writing.transport import producer_settings
from unit.config.config_files import load_more


def flow_of(*lines: str) -> SourceFlow:
    (flow,) = source_flows(load_more(*lines))
    return flow


def clients_of(flow: SourceFlow) -> dict[str, dict[str, str]]:
    """What a task gets over the wire."""
    setup = TaskSettings(flow=flow).prepare(1, 0, positions_partition_count=25)
    return {role: dict(properties) for role, properties in setup.clients.items()}


def test_fetch_sizes_and_the_rack_reach_the_reader() -> None:
    clients = clients_of(
        flow_of(
            "A.consumer.fetch.min.bytes = 7",
            "A.consumer.fetch.max.bytes = 4000000",
            "A.consumer.fetch.max.wait.ms = 250",
            "A.consumer.max.partition.fetch.bytes = 300000",
            "A.consumer.client.rack = rack-1",
            "A.consumer.check.crcs = false",
            "B.consumer.client.rack = rack-of-the-target",
        )
    )
    options = fetch_options(clients["source_consumer"], alias="A")
    assert (options.min_bytes, options.max_bytes, options.max_wait_ms) == (7, 4_000_000, 250)
    assert (options.max_partition_bytes, options.client_rack) == (300_000, "rack-1")
    assert not options.check_crcs
    assert fetch_options(clients["target_consumer"], alias="B").client_rack == "rack-of-the-target"


@pytest.mark.parametrize(
    ("line", "read_committed"),
    [
        ("A.consumer.isolation.level = read_uncommitted", False),
        ("A->B.source.consumer.isolation.level = read_uncommitted", False),
        ("A.consumer.isolation.level = read_committed", True),
        ("", True),
    ],
)
def test_the_isolation_of_the_source_is_as_the_file_says(line: str, read_committed: bool) -> None:
    flow = flow_of(line)
    prepare = TaskSettings(flow=flow).prepare(1, 0, positions_partition_count=25)
    assert prepare.read_committed is read_committed
    reading = fetch_options(dict(prepare.clients["source_consumer"]), alias="A")
    assert reading.read_committed is read_committed


def test_the_dials_of_the_producer_are_as_the_file_says() -> None:
    clients = clients_of(
        flow_of(
            "B.producer.delivery.timeout.ms = 20000",
            "B.producer.request.timeout.ms = 9000",
            "B.producer.retry.backoff.ms = 700",
            "B.producer.transaction.timeout.ms = 45000",
            "B.producer.max.request.size = 5000000",
        )
    )
    settings = producer_settings(clients["data_producer"], alias="B")
    assert (settings.delivery_timeout_seconds, settings.request_timeout_seconds) == (20, 9)
    assert (settings.transaction_timeout_seconds, settings.max_request_bytes) == (45, 5_000_000)
    assert settings.retry_pause_seconds == 0.7


def test_acks_other_than_all_are_said_to_have_no_effect() -> None:
    configuration = load_more("B.producer.acks = 1")
    (notice,) = [each for each in configuration.notices if "acks" in each.key]
    assert "always all" in notice.text


def test_transactional_ids_are_those_of_flow_and_slot_and_none_without_exactly_once() -> None:
    ids = TaskSettings(flow=flow_of("")).prepare(1, 3, positions_partition_count=25).transactional_ids
    assert list(ids) == ["twinlog-A-B-3-2", "twinlog-A-B-3-3"]
    plain = flow_of("B.exactly.once.source.support = disabled")
    assert plain.flow == Flow("A", "B")
    assert not TaskSettings(flow=plain).prepare(1, 3, positions_partition_count=25).transactional_ids


def test_holes_are_filled_as_an_id_of_the_slot_and_the_epoch_that_every_owner_fences() -> None:
    flow = flow_of("")
    fillers = [
        TaskSettings(flow=flow).prepare(epoch, 3, positions_partition_count=25).filler_transactional_id
        for epoch in (1, 2, 3)
    ]
    assert fillers == ["twinlog-A-B-3-5", "twinlog-A-B-3-4", "twinlog-A-B-3-5"]
    assert set(fillers) <= set(every_transactional_id(flow, 4))
    assert set(ids_of_slot(flow, 1, 3)) == {"twinlog-A-B-3-2", "twinlog-A-B-3-3", "twinlog-A-B-3-5"}
    plain = flow_of("B.exactly.once.source.support = disabled")
    assert not ids_of_slot(plain, 1, 3)
    assert not TaskSettings(flow=plain).prepare(1, 3, positions_partition_count=25).filler_transactional_id


def test_markers_are_written_as_one_id_of_the_flow_whichever_slot_and_epoch() -> None:
    flow = flow_of("")
    ids = {
        TaskSettings(flow=flow).prepare(epoch, slot, positions_partition_count=25).marker_transactional_id
        for epoch in (1, 2)
        for slot in (0, 3)
    }
    assert ids == {"twinlog-A-B-markers"}
    plain = flow_of("B.exactly.once.source.support = disabled")
    assert not TaskSettings(flow=plain).prepare(1, 3, positions_partition_count=25).marker_transactional_id


def test_tasks_learn_who_writes_the_preserved_copies() -> None:
    tasks = TaskSettings(flow=flow_of(""))
    assert tasks.prepare(1, 0, positions_partition_count=25).preserved_writer is None
    writer = WriterFact(producer_id=7, producer_epoch=2)
    assert tasks.prepare(1, 0, positions_partition_count=25, writer=writer).preserved_writer == writer


def test_tasks_of_many_flows_report_less_often() -> None:
    def told(flows: int) -> float:
        tasks = TaskSettings(flow=flow_of(""), flows=flows)
        return tasks.prepare(1, 0, positions_partition_count=25).report_seconds

    assert [told(flows) for flows in (1, 10, 20, 100)] == [1.0, 1.0, 2.0, 3.0]

"""What a broker answers on the wire: what clients rely on, and what the fake has to answer as well."""

from functools import partial
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from contract.cluster.cluster_rig import ClusterRig, new_topic
from contract.cluster.wire_client import (
    WireClient,
    add_partition,
    batch_bytes,
    end,
    fetch,
    new_identity,
    offset_at,
    produce,
    wire_client,
)
from twinlog.batches import HEADER_BYTES, Codec, decode_batch, iter_batches
from twinlog.clock import SystemClock
from twinlog.testing.brokers import eventually, unique_name

_VERIFIED_PRODUCE = 10
_IMPLICIT_ADD_PRODUCE = 12


class WireContract:
    async def test_sequences_are_checked_and_repeated_batches_answered(self, rig: ClusterRig) -> None:
        topic = await new_topic(rig.cluster, "sequences")
        async with wire_client(rig) as client:
            identity = await new_identity(client)

            async def send(sequence: int, *, epoch: int = identity[1]) -> tuple[ErrorCode, int]:
                data = batch_bytes(b"a", b"b", identity=(identity[0], epoch), sequence=sequence)
                return await produce(client, topic, data)

            for number in range(6):
                assert await send(2 * number) == (ErrorCode.none, 2 * number)
            assert await send(2) == (ErrorCode.none, 2)
            assert (await send(0))[0] is ErrorCode.out_of_order_sequence_number
            assert (await send(14))[0] is ErrorCode.out_of_order_sequence_number
            assert (await send(12, epoch=1))[0] is ErrorCode.out_of_order_sequence_number
            assert await send(0, epoch=1) == (ErrorCode.none, 12)
            assert (await send(12))[0] is ErrorCode.invalid_producer_epoch

    async def test_a_producer_that_the_log_does_not_know_begins_anywhere(self, rig: ClusterRig) -> None:
        topic = await new_topic(rig.cluster, "unknown-producer")
        async with wire_client(rig) as client:
            identity = await new_identity(client)
            data = batch_bytes(b"a", identity=identity, sequence=7)
            assert await produce(client, topic, data) == (ErrorCode.none, 0)

    async def test_damaged_and_impossible_batches_are_refused(self, rig: ClusterRig) -> None:
        topic = await new_topic(rig.cluster, "damaged", configs={"max.message.bytes": "1000"})
        good = batch_bytes(b"a")
        damaged = good[:-1] + bytes([good[-1] ^ 1])
        async with wire_client(rig) as client:
            assert (await produce(client, topic, damaged))[0] is ErrorCode.corrupt_message
            assert (await produce(client, topic, batch_bytes(b"x" * 2000)))[0] is ErrorCode.message_too_large
            assert await produce(client, topic, good) == (ErrorCode.none, 0)

    async def test_of_more_replicas_in_sync_than_a_partition_has_only_old_brokers_know(
        self, rig: ClusterRig
    ) -> None:
        """Since 3.7 all of its replicas do."""
        topic = await new_topic(rig.cluster, "in-sync", configs={"min.insync.replicas": "2"})
        async with wire_client(rig) as client:
            answered, _ = await produce(client, topic, batch_bytes(b"a"))
        expected = ErrorCode.none if rig.release.name >= "3.7" else ErrorCode.not_enough_replicas
        assert answered is expected

    async def test_fetches_outside_the_log_and_of_other_epochs_are_refused(self, rig: ClusterRig) -> None:
        topic = await new_topic(rig.cluster, "outside")
        async with wire_client(rig) as client:
            await produce(client, topic, batch_bytes(b"a"))
            assert (await fetch(client, topic, 2)).error_code is ErrorCode.offset_out_of_range
            assert (await fetch(client, topic, 0, epoch=0)).error_code is ErrorCode.none
            assert (await fetch(client, topic, 0, epoch=9)).error_code is ErrorCode.unknown_leader_epoch
            found = await fetch(client, topic, 1)
            assert (found.error_code, bytes(found.records or b"")) == (ErrorCode.none, b"")

    async def test_the_first_batch_is_whole_and_the_last_one_may_be_cut(self, rig: ClusterRig) -> None:
        topic = await new_topic(rig.cluster, "cut")
        async with wire_client(rig) as client:
            size = len(batch_bytes(b"x" * 500))
            for _ in range(3):
                await produce(client, topic, batch_bytes(b"x" * 500))
            for limit, expected in ((10, size), (size + 10, size + 10), (3 * size + 10, 3 * size)):
                found = await fetch(client, topic, 0, max_bytes=limit)
                assert len(found.records) == expected

    @pytest.mark.parametrize(
        ("compression", "sent", "stored"),
        [
            ("zstd", Codec.NONE, Codec.ZSTD),
            ("uncompressed", Codec.GZIP, Codec.NONE),
            ("lz4", Codec.LZ4, Codec.LZ4),
            ("producer", Codec.SNAPPY, Codec.SNAPPY),
        ],
    )
    async def test_batches_are_stored_in_the_codec_of_the_topic(
        self, rig: ClusterRig, compression: str, sent: Codec, stored: Codec
    ) -> None:
        topic = await new_topic(rig.cluster, "codec", configs={"compression.type": compression})
        async with wire_client(rig) as client:
            identity = await new_identity(client)
            data = batch_bytes(b"a" * 300, b"b" * 300, identity=identity, sequence=0, codec=sent)
            assert await produce(client, topic, data) == (ErrorCode.none, 0)
            assert await produce(client, topic, data) == (ErrorCode.none, 0)
            (found,) = iter_batches((await fetch(client, topic, 0)).records)
        assert found.header.codec is stored
        assert (found.data[HEADER_BYTES:] == data[HEADER_BYTES:]) == (sent is stored)
        assert found.header.producer_id == identity[0]
        records = decode_batch(found)
        assert [(each.offset, each.timestamp_ms) for each in records] == [(0, 1_000), (1, 1_001)]
        assert [each.value for each in records] == [b"a" * 300, b"b" * 300]

    async def test_brokers_since_4_0_tell_of_those_that_are_fenced(self, rig: ClusterRig) -> None:
        present = await rig.cluster.presence()
        async with wire_client(rig) as client:
            knows = client.highest("describe_cluster") >= 2
            asked = {"include_cluster_authorized_operations": False}
            told = await client.ask(
                "describe_cluster", 2, **asked, **({"include_fenced_brokers": True} if knows else {})
            )
        assert told.cluster_id == present.cluster_id
        assert {each.broker_id: f"{each.host}:{each.port}" for each in told.brokers} == present.brokers
        assert not any(each.is_fenced for each in told.brokers if knows)

    async def test_offsets_by_kind_and_time(self, rig: ClusterRig) -> None:
        topic = await new_topic(rig.cluster, "kinds")
        kinds = {
            -1: (3, -1),
            -2: (0, -1),
            5_001: (1, 5_001),
            500: (0, 5_000),
            9_000: (-1, -1),
        }
        async with wire_client(rig) as client:
            await produce(client, topic, batch_bytes(b"a", b"b", timestamp_ms=5_000))
            await produce(client, topic, batch_bytes(b"c", timestamp_ms=1_000))
            for kind, at in kinds.items():
                assert await offset_at(client, topic, kind) == (ErrorCode.none, *at), kind

    @pytest.mark.parametrize(("asked", "answered"), [(0, (0, 1)), (-1, (-1, -1)), (5, (-1, -1))])
    async def test_where_an_epoch_ends(self, rig: ClusterRig, asked: int, answered: tuple[int, int]) -> None:
        topic = await new_topic(rig.cluster, "epochs")
        async with wire_client(rig) as client:
            await produce(client, topic, batch_bytes(b"a"))
            part = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": asked}
            answer = await client.ask(
                "offset_for_leader_epoch", 4, replica_id=-1, topics=[{"topic": topic, "partitions": [part]}]
            )
            found = answer.topics[0].partitions[0]
            assert (found.error_code, (found.leader_epoch, found.end_offset)) == (ErrorCode.none, answered)


class TransactionWireContract:
    async def test_a_batch_of_a_partition_outside_the_transaction_is_refused(self, rig: ClusterRig) -> None:
        topic, name = await new_topic(rig.cluster, "outside-txn"), unique_name("txn")
        async with wire_client(rig) as client:
            identity = await new_identity(client, name)
            data = batch_bytes(b"a", identity=identity, sequence=0, transactional=True)
            if client.highest("produce") < _VERIFIED_PRODUCE:
                pytest.skip("leaders ask coordinators since 3.6")
            for version, code in ((10, ErrorCode.invalid_txn_state), (11, ErrorCode.transaction_abortable)):
                refused, _ = await produce(client, topic, data, version=version, transactional_id=name)
                assert refused is code
            assert await add_partition(client, name, identity, topic) is ErrorCode.none
            assert await produce(client, topic, data, transactional_id=name) == (ErrorCode.none, 0)

    async def test_transactions_of_version_1_keep_their_epoch(self, rig: ClusterRig) -> None:
        topic, name = (
            await new_topic(rig.cluster, "version-1", configs={"retention.ms": "-1"}),
            unique_name("txn"),
        )
        async with wire_client(rig) as client:
            identity = await new_identity(client, name)
            assert (await end(client, name, identity, version=4)).error_code is ErrorCode.invalid_txn_state
            assert await add_partition(client, name, identity, topic) is ErrorCode.none
            data = batch_bytes(b"a", identity=identity, sequence=0, transactional=True)
            assert await produce(client, topic, data, transactional_id=name) == (ErrorCode.none, 0)
            assert (await fetch(client, topic, 0)).last_stable_offset == 0
            assert (await end(client, name, identity, version=4)).error_code is ErrorCode.none
            assert await eventually(lambda: _is_stable(client, topic, 2))
            assert (await end(client, name, identity, version=4)).error_code is ErrorCode.none
            refused = await end(client, name, identity, version=4, committed=False)
            assert refused.error_code is ErrorCode.invalid_txn_state
            data = batch_bytes(b"b", identity=identity, sequence=1, transactional=True)
            assert await add_partition(client, name, identity, topic) is ErrorCode.none
            assert await produce(client, topic, data, transactional_id=name) == (ErrorCode.none, 2)
            assert (
                await end(client, name, identity, version=4, committed=False)
            ).error_code is ErrorCode.none
            assert await eventually(lambda: _is_stable(client, topic, 4))

    async def test_aborted_transactions_are_listed_up_to_the_end_of_the_segment(
        self, rig: ClusterRig
    ) -> None:
        """A fetch reads from one segment. The time of a marker is the broker's: it begins one behind old
        records."""
        keep = {"retention.ms": "-1"}
        old, new = [await new_topic(rig.cluster, "segments", configs=keep) for _ in range(2)]
        name = unique_name("txn")
        async with wire_client(rig) as client:
            identity = await new_identity(client, name)
            for topic, timestamp_ms in ((old, 1_000), (new, SystemClock().now_ms())):
                for number in range(2):
                    data = batch_bytes(
                        b"a",
                        identity=identity,
                        sequence=number,
                        transactional=True,
                        timestamp_ms=timestamp_ms,
                    )
                    assert await add_partition(client, name, identity, topic) is ErrorCode.none
                    sent = await produce(client, topic, data, transactional_id=name)
                    assert sent == (ErrorCode.none, 2 * number)
                    await end(client, name, identity, version=3, committed=number == 0)
                    assert await eventually(partial(_is_stable, client, topic, 2 * number + 2))

            async def aborted(topic: str, offset: int) -> list[int]:
                found = await fetch(client, topic, offset)
                return [each.first_offset for each in found.aborted_transactions]

            assert [await aborted(old, offset) for offset in range(5)] == [[], [2], [2], [2], []]
            assert [await aborted(new, offset) for offset in range(5)] == [[2], [2], [2], [2], []]
            assert offsets_in(await fetch(client, old, 0)) == [0]
            assert offsets_in(await fetch(client, old, 1)) == [1, 2, 3]

    async def test_transactions_of_version_2_have_an_epoch_each(self, rig: ClusterRig) -> None:
        topic, name = await new_topic(rig.cluster, "version-2"), unique_name("txn")
        async with wire_client(rig) as client:
            if await _transaction_version(client) < 2:
                pytest.skip("the cluster has no transactions of version 2")
            identity = await new_identity(client, name)
            for number in range(2):
                data = batch_bytes(b"a", identity=identity, sequence=0, transactional=True)
                sent = await produce(
                    client, topic, data, version=_IMPLICIT_ADD_PRODUCE, transactional_id=name
                )
                assert sent == (ErrorCode.none, 2 * number)
                answer = await end(client, name, identity, version=5)
                assert answer.error_code is ErrorCode.none
                assert (answer.producer_id, answer.producer_epoch) == (identity[0], identity[1] + 1)
                assert await eventually(partial(_is_stable, client, topic, 2 * number + 2))
                again = await end(client, name, identity, version=5)
                assert (again.error_code, again.producer_epoch) == (ErrorCode.none, identity[1] + 1)
                before, identity = identity, (answer.producer_id, answer.producer_epoch)
                late = batch_bytes(b"late", identity=before, sequence=1, transactional=True)
                refused, _ = await produce(
                    client, topic, late, version=_IMPLICIT_ADD_PRODUCE, transactional_id=name
                )
                assert refused is ErrorCode.invalid_producer_epoch

    async def test_a_transaction_of_version_2_that_comes_before_the_markers_of_the_last_one_waits(
        self, rig: ClusterRig
    ) -> None:
        topic, name = await new_topic(rig.cluster, "waits"), unique_name("txn")
        async with wire_client(rig) as client:
            if await _transaction_version(client) < 2:
                pytest.skip("the cluster has no transactions of version 2")
            identity = await new_identity(client, name)
            for number in range(10):
                data = batch_bytes(b"a", identity=identity, sequence=0, transactional=True)
                sent = ErrorCode.concurrent_transactions, -1
                while sent[0] is ErrorCode.concurrent_transactions:
                    sent = await produce(
                        client, topic, data, version=_IMPLICIT_ADD_PRODUCE, transactional_id=name
                    )
                assert sent == (ErrorCode.none, 2 * number)
                answer = await end(client, name, identity, version=5)
                identity = answer.producer_id, answer.producer_epoch

    async def test_the_next_owner_fences_and_leaders_know_it(self, rig: ClusterRig) -> None:
        topic, name = await new_topic(rig.cluster, "fenced"), unique_name("txn")
        async with wire_client(rig) as client:
            old = await new_identity(client, name)
            assert await add_partition(client, name, old, topic) is ErrorCode.none
            data = batch_bytes(b"a", identity=old, sequence=0, transactional=True)
            await produce(client, topic, data, transactional_id=name)
            new = await new_identity(client, name)
            assert new == (old[0], old[1] + 2)
            assert await add_partition(client, name, old, topic) is ErrorCode.producer_fenced
            assert (await end(client, name, old, version=3)).error_code is ErrorCode.producer_fenced
            data = batch_bytes(b"b", identity=old, sequence=1, transactional=True)
            refused, _ = await produce(client, topic, data, transactional_id=name)
            assert refused is ErrorCode.invalid_producer_epoch
            stranger = (old[0] + 1_000_000, 0)
            refused = await add_partition(client, name, stranger, topic)
            assert refused is ErrorCode.invalid_producer_id_mapping

    async def test_producers_and_transactions_are_described(self, rig: ClusterRig) -> None:
        topic, name = await new_topic(rig.cluster, "described"), unique_name("txn")
        async with wire_client(rig) as client:
            identity = await new_identity(client, name)
            await add_partition(client, name, identity, topic)
            data = batch_bytes(b"a", b"b", identity=identity, sequence=0, transactional=True)
            await produce(client, topic, data, transactional_id=name)
            found = await client.ask(
                "describe_producers", 0, topics=[{"name": topic, "partition_indexes": [0]}]
            )
            (producer,) = found.topics[0].partitions[0].active_producers
            assert (producer.producer_id, producer.producer_epoch) == identity
            assert (producer.last_sequence, producer.last_timestamp) == (1, 1_001)
            assert (producer.current_txn_start_offset, producer.coordinator_epoch) == (0, -1)
            if client.highest("describe_transactions") >= 0:
                found = await client.ask("describe_transactions", 0, transactional_ids=[name, "no-such-id"])
                known, unknown = found.transaction_states
                assert (known.error_code, known.transaction_state) == (ErrorCode.none, "Ongoing")
                assert [(each.topic, each.partitions) for each in known.topics] == [(topic, (0,))]
                assert unknown.error_code is ErrorCode.transactional_id_not_found
            marker = {
                "producer_id": identity[0],
                "producer_epoch": identity[1],
                "transaction_result": False,
                "topics": [{"name": topic, "partition_indexes": [0]}],
                "coordinator_epoch": 0,
            }
            await client.ask("write_txn_markers", 1, markers=[marker])
            assert await eventually(lambda: _is_stable(client, topic, 3))


def offsets_in(found: Any) -> list[int]:
    """The base offsets of the batches of a fetched partition."""
    return [each.header.base_offset for each in iter_batches(found.records)]


async def _is_stable(client: WireClient, topic: str, offset: int) -> bool:
    found = await fetch(client, topic, 0)
    return bool(found.last_stable_offset == offset == found.high_watermark)


async def _transaction_version(client: WireClient) -> int:
    answer = await client.ask("api_versions", 3, client_software_name="wire", client_software_version="1")
    levels = {each.name: each.max_version_level for each in answer.finalized_features}
    return int(levels.get("transaction.version", 0))

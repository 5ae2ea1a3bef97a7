"""The ids of what a flow wants, in parts that fit into records."""

from hypothesis import given
from hypothesis import strategies as st

from twinlog.kafka.ports import QuotaEntity
from twinlog_configsync.model.memory import (
    ACLS,
    QUOTAS,
    Memory,
    acl_id,
    quota_id,
    recall,
    wanted_ids,
    wanted_records,
)
from twinlog_configsync.model.records import (
    RecordKey,
    StoredKind,
    WantedRecord,
    decode_value,
    encode_key,
    encode_value,
)
from unit.configsync.configsync_rig import READ_ORDERS

MOST_BYTES = 500_000
ids = st.frozensets(st.integers(min_value=0, max_value=2**64 - 1).map(lambda number: f"{number:016x}"))


def numbered(count: int) -> frozenset[str]:
    return frozenset(quota_id(QuotaEntity((("user", str(number)),)), "rate") for number in range(count))


@given(acls=ids, quotas=ids)
def test_what_is_stored_is_read_back(acls: frozenset[str], quotas: frozenset[str]) -> None:
    stored = Memory(wanted_acls=acls, wanted_quotas=quotas).records()
    records = {key: decode_value(key, encode_value(value)) for key, value in stored.items()}
    memory = recall(records)
    assert (memory.wanted_acls, memory.wanted_quotas) == (acls, quotas)


def test_the_empty_set_is_known_and_a_missing_one_is_not() -> None:
    assert wanted_ids(ACLS, wanted_records(ACLS, frozenset())) == frozenset()
    assert wanted_ids(QUOTAS, wanted_records(ACLS, frozenset())) is None
    assert recall({}).wanted_acls is None


def test_each_part_of_a_large_set_fits_into_a_record() -> None:
    many = numbered(60_000)
    records = wanted_records(ACLS, many)
    assert len(records) == 6
    assert max(len(encode_value(value)) for value in records.values()) < MOST_BYTES
    assert wanted_ids(ACLS, records) == many


def test_parts_of_different_times_are_no_set() -> None:
    """A reader may see a write that has not ended."""
    small, large = wanted_records(ACLS, numbered(5)), wanted_records(ACLS, numbered(10_001))
    assert wanted_ids(ACLS, small | {RecordKey(StoredKind.WANTED, "acls 1"): _part(large, 1)}) is None
    assert wanted_ids(ACLS, {RecordKey(StoredKind.WANTED, "acls 1"): _part(large, 1)}) is None
    assert wanted_ids(ACLS, {RecordKey(StoredKind.WANTED, "acls 7"): _part(large, 0)}) is None


def _part(records: object, number: int) -> WantedRecord:
    assert isinstance(records, dict)
    part = records[RecordKey(StoredKind.WANTED, f"acls {number}")]
    assert isinstance(part, WantedRecord)
    return part


def test_ids_and_bytes_are_the_same_in_every_release() -> None:
    """Another process reads them, perhaps of another release."""
    assert acl_id(READ_ORDERS) == "68efa691a1cc8842"
    quota = quota_id(QuotaEntity((("user", "alice"),)), "producer_byte_rate")
    assert quota == "868cd21320eb6e85"
    ((key, value),) = wanted_records(QUOTAS, frozenset({quota})).items()
    assert encode_key(key) == b'["wanted","quotas 0"]'
    assert encode_value(value) == b'{"version":1,"part":0,"part_count":1,"ids":["868cd21320eb6e85"]}'

"""What brokers of a release offer in ApiVersions, so that clients negotiate as with them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from kio.schema.index import api_key_map

from twinlog.testing.broker.codec import schema_versions

_KEYS = {name: key for key, name in api_key_map.items()}

_HIGHEST_4_3 = {"init_producer_id": 5, "describe_log_dirs": 5, "share_fetch": 2}
"""Where the newest schema is not offered: v6 of InitProducerId is unstable (KIP-939)."""
_HIGHEST_3_9 = {
    "produce": 11, "fetch": 17, "list_offsets": 9, "metadata": 12, "offset_commit": 9, "offset_fetch": 9,
    "find_coordinator": 6, "join_group": 9, "describe_groups": 5, "list_groups": 5, "api_versions": 4,
    "init_producer_id": 5, "add_partitions_to_txn": 5, "add_offsets_to_txn": 4, "end_txn": 4,
    "write_txn_markers": 1, "txn_offset_commit": 4, "describe_cluster": 1, "consumer_group_heartbeat": 0,
    "consumer_group_describe": 0, "list_transactions": 1, "list_config_resources": 0, "describe_log_dirs": 4,
}  # fmt: skip
_HIGHEST_2_8 = {
    "produce": 9, "fetch": 12, "list_offsets": 6, "metadata": 11, "offset_commit": 8, "offset_fetch": 7,
    "find_coordinator": 3, "join_group": 7, "heartbeat": 4, "leave_group": 4, "sync_group": 5,
    "describe_groups": 5, "list_groups": 4, "api_versions": 3, "create_topics": 7, "delete_topics": 6,
    "init_producer_id": 4, "add_partitions_to_txn": 3, "add_offsets_to_txn": 3, "end_txn": 3,
    "write_txn_markers": 1, "txn_offset_commit": 3, "describe_acls": 2, "create_acls": 2, "delete_acls": 2,
    "describe_configs": 4, "describe_log_dirs": 2, "describe_cluster": 0,
}  # fmt: skip
_LATER_THAN_2_8 = frozenset(
    {"list_transactions", "describe_transactions", "consumer_group_heartbeat", "consumer_group_describe",
     "describe_topic_partitions", "list_config_resources"}
)  # fmt: skip
_LATER_THAN_3_9 = frozenset(
    name for name in _KEYS if name.startswith(("share_", "streams_")) or "share_group" in name
)


@dataclass(frozen=True)
class Release:
    """A broker release: the versions that it offers, and its features."""

    name: str
    highest: Mapping[str, int] = field(repr=False)
    """By kio's name of an API; for others the newest schema."""
    missing: Collection[str] = field(repr=False, default=())
    features: Mapping[str, int] = field(default_factory=dict)
    """The finalized level by name; `transaction.version` 2 lets producers write without
    AddPartitionsToTxn (KIP-890)."""

    def offered(self, api_key: int) -> tuple[int, int] | None:
        """The lowest and highest version, None for an API that it does not have."""
        return self._ranges.get(api_key)

    verifies_transactions: bool = True
    """Whether leaders ask the coordinator before the first batch of a transaction (since 3.6)."""

    @property
    def is_before_4(self) -> bool:
        return self.name < "4"

    @property
    def transaction_version(self) -> int:
        return self.features.get("transaction.version", 0)

    @cached_property
    def _ranges(self) -> dict[int, tuple[int, int]]:
        ranges = {}
        for key, name in api_key_map.items():
            lowest, highest = schema_versions(key)
            if name not in self.missing and key in _CLIENT_APIS:
                if self.is_before_4:
                    lowest = 0  # KIP-896 dropped versions. Of these the oldest are told, but cannot be read.
                ranges[key] = (lowest, min(highest, self.highest.get(name, highest)))
        return ranges


_CLIENT_APIS = frozenset((*range(78), 88, 89)) - {
    4,
    5,
    6,
    7,
    *range(52, 55),
    56,
    58,
    59,
    62,
    63,
    64,
    67,
    70,
    73,
}
"""Without those between brokers and controllers."""

KAFKA_4_3 = Release(
    "4.3", _HIGHEST_4_3, features={"group.version": 1, "metadata.version": 29, "transaction.version": 2}
)
KAFKA_3_9 = Release("3.9", _HIGHEST_3_9, _LATER_THAN_3_9, features={"metadata.version": 21})
KAFKA_2_8 = Release("2.8", _HIGHEST_2_8, _LATER_THAN_2_8 | _LATER_THAN_3_9, verifies_transactions=False)

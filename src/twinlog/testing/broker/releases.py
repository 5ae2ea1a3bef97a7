"""What brokers of a release offer in ApiVersions, so that clients negotiate as with them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from kio.schema.index import api_key_map

from twinlog.testing.broker.codec import schema_versions

_LATER_THAN_3_9 = frozenset(
    {"share_group_heartbeat", "share_group_describe", "streams_group_heartbeat", "streams_group_describe"}
)
_LATER_THAN_3_3 = _LATER_THAN_3_9 | {
    "consumer_group_heartbeat", "consumer_group_describe", "describe_topic_partitions",
}  # fmt: skip
_HIGHEST_4 = {"init_producer_id": 5}
"""Where the newest schema is not offered: v6 is unstable (KIP-939)."""
_HIGHEST_3_9 = {
    "produce": 11, "fetch": 17, "list_offsets": 9, "metadata": 12, "offset_commit": 9, "offset_fetch": 9,
    "describe_groups": 5, "init_producer_id": 5, "end_txn": 4, "write_txn_markers": 1,
    "txn_offset_commit": 4, "describe_cluster": 1, "consumer_group_heartbeat": 0,
    "consumer_group_describe": 0, "list_transactions": 1,
}  # fmt: skip
_HIGHEST_3_3 = {
    **_HIGHEST_3_9, "api_versions": 3, "produce": 9, "fetch": 13, "list_offsets": 7, "find_coordinator": 4,
    "init_producer_id": 4, "add_partitions_to_txn": 3, "add_offsets_to_txn": 3, "end_txn": 3,
    "list_transactions": 0, "list_groups": 4, "offset_commit": 8, "txn_offset_commit": 3, "offset_fetch": 8,
    "describe_cluster": 0,
}  # fmt: skip
_HIGHEST_2_8 = {
    **_HIGHEST_3_3, "metadata": 11, "fetch": 12, "list_offsets": 6, "find_coordinator": 3, "join_group": 7,
    "leave_group": 4, "offset_fetch": 7, "describe_acls": 2, "create_acls": 2, "delete_acls": 2,
}  # fmt: skip


_GROUP_FEATURES = {
    "consumer": "group.version",
    "share": "share.version",
    "streams": "streams.version",
}


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
    def has_zookeeper(self) -> bool:
        return self.name < "3"

    @property
    def group_types(self) -> set[str]:
        """The protocols that groups can have."""
        return {"classic", *(kind for kind, name in _GROUP_FEATURES.items() if self.features.get(name))}

    @cached_property
    def _ranges(self) -> dict[int, tuple[int, int]]:
        ranges = {}
        for key, name in api_key_map.items():
            lowest, highest = schema_versions(key)
            if name not in self.missing:
                if self.is_before_4 or name == "produce":
                    lowest = 0  # KIP-896 dropped versions. Of these the oldest are told, but cannot be read.
                ranges[key] = (lowest, min(highest, self.highest.get(name, highest)))
        return ranges


_FEATURES_4_3 = {
    "eligible.leader.replicas.version": 1, "group.version": 1, "metadata.version": 30, "share.version": 1,
    "streams.version": 1, "transaction.version": 2,
}  # fmt: skip
KAFKA_4_4 = Release("4.4", _HIGHEST_4, features={**_FEATURES_4_3, "metadata.version": 33, "share.version": 2})
KAFKA_4_3 = Release("4.3", _HIGHEST_4, features=_FEATURES_4_3)
KAFKA_3_9 = Release("3.9", _HIGHEST_3_9, _LATER_THAN_3_9, features={"metadata.version": 21})
KAFKA_3_3 = Release(
    "3.3",
    _HIGHEST_3_3,
    # KRaft: SCRAM users came with 3.5.
    _LATER_THAN_3_3 | {"describe_user_scram_credentials"},
    features={"metadata.version": 7},
    verifies_transactions=False,
)
KAFKA_2_8 = Release(
    "2.8",
    _HIGHEST_2_8,
    _LATER_THAN_3_3 | {"describe_transactions", "list_transactions"},
    verifies_transactions=False,
)
"""With ZooKeeper."""
RELEASES = (KAFKA_4_4, KAFKA_4_3, KAFKA_3_9, KAFKA_3_3, KAFKA_2_8)

"""Kafka Connect's transforms of an MM2 file, as functions over records and names. Pure.

A record is seen as MirrorMaker 2 shows it to a transform: under the name of its copy (`A.orders`), with bytes
as key, value and header values.
"""

from twinlog.transforms.chain import (
    BoundChain,
    Chain,
    DropHeaders,
    Filter,
    HasHeaderKey,
    InsertHeader,
    Predicate,
    RecordIsTombstone,
    RegexRouter,
    Step,
    TopicNameMatches,
    Transform,
)
from twinlog.transforms.configured import chain_from_config, problems_of_config

__all__ = [
    "BoundChain",
    "Chain",
    "DropHeaders",
    "Filter",
    "HasHeaderKey",
    "InsertHeader",
    "Predicate",
    "RecordIsTombstone",
    "RegexRouter",
    "Step",
    "TopicNameMatches",
    "Transform",
    "chain_from_config",
    "problems_of_config",
]

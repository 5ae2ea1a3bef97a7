"""Kafka Connect's transforms of an MM2 file, as pure functions over records. Pure.

A record is seen as MirrorMaker 2 shows it to a transform: under the name of its copy (`A.orders`), with bytes
as key, value and header values.
"""

from twinlog.transforms.chain import BoundChain, Chain, Step, TransformedRecord
from twinlog.transforms.configured import chain_from_config, problems_of_config
from twinlog.transforms.predicates import HasHeaderKey, Predicate, RecordIsTombstone, TopicNameMatches
from twinlog.transforms.routers import RegexRouter, TimestampRouter
from twinlog.transforms.steps import DropHeaders, Filter, InsertHeader, Transform

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
    "TimestampRouter",
    "TopicNameMatches",
    "Transform",
    "TransformedRecord",
    "chain_from_config",
    "problems_of_config",
]

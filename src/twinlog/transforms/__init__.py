"""Kafka Connect's transforms of an MM2 file, as functions over records and names. Pure.

A record is seen as MirrorMaker 2 shows it to a transform: under the name of its copy (`A.orders`), with bytes
as key, value and header values.
"""

from twinlog.transforms.chain import BoundChain as BoundChain
from twinlog.transforms.chain import Chain as Chain
from twinlog.transforms.chain import ChainStep as ChainStep
from twinlog.transforms.chain import DropHeaders as DropHeaders
from twinlog.transforms.chain import Filter as Filter
from twinlog.transforms.chain import HasHeaderKey as HasHeaderKey
from twinlog.transforms.chain import InsertHeader as InsertHeader
from twinlog.transforms.chain import Predicate as Predicate
from twinlog.transforms.chain import RecordIsTombstone as RecordIsTombstone
from twinlog.transforms.chain import RegexRouter as RegexRouter
from twinlog.transforms.chain import TimestampRouter as TimestampRouter
from twinlog.transforms.chain import TopicNameMatches as TopicNameMatches
from twinlog.transforms.chain import Transform as Transform
from twinlog.transforms.configured import chain_from_config as chain_from_config
from twinlog.transforms.configured import problems_of_config as problems_of_config

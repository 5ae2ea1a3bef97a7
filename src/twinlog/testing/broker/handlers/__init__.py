"""One function per API. Each module has the APIs of one subject, and a `Handlers` of its own."""

from twinlog.testing.broker.calls import Handlers
from twinlog.testing.broker.handlers import (
    acls,
    configs,
    fetch,
    groups,
    metadata,
    offsets,
    produce,
    topics,
    transactions,
)

HANDLERS = Handlers()
for _module in (metadata, topics, produce, fetch, transactions, groups, offsets, configs, acls):
    HANDLERS.update(_module.HANDLERS)

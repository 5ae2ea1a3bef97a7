"""One function per API. Each module has the APIs of one subject, and a `Handlers` of its own."""

from twinlog.testing.broker.calls import Handlers
from twinlog.testing.broker.handlers import coordinators, metadata, topics

HANDLERS = Handlers()
for _module in (metadata, topics, coordinators):
    HANDLERS.update(_module.HANDLERS)

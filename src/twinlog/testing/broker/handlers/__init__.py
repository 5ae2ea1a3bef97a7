"""One function per API. Each module has the APIs of one subject, and a `Handlers` of its own."""

from twinlog.testing.broker.calls import Handlers
from twinlog.testing.broker.handlers import (
    acls,
    cluster_info,
    configs,
    coordinators,
    fetch,
    groups,
    groups_admin,
    groups_modern,
    list_offsets,
    logs,
    metadata,
    offsets,
    produce,
    quotas,
    sasl,
    topics,
    transactions,
)

HANDLERS = Handlers()
for _module in (
    metadata, topics, produce, fetch, list_offsets, logs, coordinators, transactions,
    groups, groups_modern, groups_admin, offsets, configs, acls, quotas, cluster_info, sasl,
):  # fmt: skip
    HANDLERS.update(_module.HANDLERS)

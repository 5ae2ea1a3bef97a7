"""Opens a flow's lease from a service's context."""

import os
import socket
from collections.abc import Callable
from functools import partial

from twinlog.config import Service
from twinlog.kafka.ports import KafkaCluster
from twinlog.model import Flow
from twinlog.policy.names import lease_group
from twinlog.service.app import ServiceContext
from twinlog.service.owner.deployments import selection_fingerprint
from twinlog.service.owner.lease import STEPS_PER_SESSION, FlowLease
from twinlog.service.owner.name import OwnerName, own_address
from twinlog.service.owner.process_mark import is_gone, process_mark


def open_lease(context: ServiceContext, flow: Flow, target: KafkaCluster) -> FlowLease:
    """The lease of a flow for the service of this context. Connects nothing yet."""
    seconds = context.configuration.runtime.owner_timeout_seconds
    group = lease_group(context.name, flow)
    rules = selection_fingerprint(context.configuration.flow(flow))
    candidate = target.candidate(
        group,
        name=_process_name(context, rules),
        session_seconds=seconds,
        mark=process_mark(),
        is_gone=is_gone,
    )
    lease = FlowLease(
        flow,
        candidate,
        group=group,
        session_seconds=seconds,
        clock=context.clock,
        backoff=context.backoff(0.2, seconds / STEPS_PER_SESSION),
        rules=rules,
        on_owner=partial(context.standings.owner_changed, flow),
    )
    context.standings.add(flow, lease.is_owner)
    return lease


def _process_name(context: ServiceContext, rules: str) -> Callable[[], str]:
    """People need it to find the process, callers to reach it, and deployments to tell each other apart."""

    def name() -> str:
        host, port = socket.gethostname(), context.bound.number
        places = context.configuration.endpoints[Service(context.name)]
        address = own_address(endpoint=places.endpoint, listen=places.listen, port=port, host=host)
        return str(OwnerName(process=f"{host}:{port}, process {os.getpid()}", address=address, rules=rules))

    return name

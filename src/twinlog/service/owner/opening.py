"""Opens a flow's lease from a service's context."""

import os
import socket
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Final

from twinlog.config import Service
from twinlog.kafka.ports import KafkaCluster
from twinlog.model import Flow
from twinlog.policy.internal_topics import owners_group
from twinlog.service.app import ServiceContext
from twinlog.service.owner.assignment import Reach
from twinlog.service.owner.lease import FlowLease
from twinlog.service.owner.membership import STEPS_PER_SESSION, Membership
from twinlog.service.owner.name import OwnerName, own_address, selection_fingerprint

# Identifies a process, so that another one on the same machine knows for certain when it has ended.
#
# A host name or an address is not enough: containers on different machines may share them. The kernel's id
# of this boot differs from any other machine's, except for machines copied while they ran; so the host name
# counts too. Within a boot and a namespace of process ids, an unused id belonged to a process that has
# ended.

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_PID_NAMESPACE = Path("/proc/self/ns/pid")


def process_mark() -> str:
    """`<host>/<boot>/<namespace of process ids>/<process id>`; empty where the system (not Linux) does not
    tell."""
    place = _place()
    return f"{place}/{os.getpid()}" if place else ""


def is_gone(mark: str) -> bool:
    """Whether the process with this mark has certainly ended. False when that cannot be judged from here:
    another machine, an earlier boot, another container."""
    place, _, pid = mark.rpartition("/")
    if not place or place != _place() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False


def _place() -> str:
    try:
        return f"{socket.gethostname()}/{_boot()}"
    except OSError:
        return ""


@cache
def _boot() -> str:
    """What stays; a machine that was copied may get another name while it runs."""
    return f"{_BOOT.read_text().strip()}/{_PID_NAMESPACE.stat().st_ino}"


_LOST_AFTER_SECONDS: Final = 60.0
"""A source that a process has not reached for so long is another's, who does."""


def open_lease(
    context: ServiceContext,
    flow: Flow,
    target: KafkaCluster,
    *,
    megabytes_per_second: Callable[[], float] = lambda: 0.0,
) -> FlowLease:
    """The lease of a flow for the service of this context; the runtime keeps the membership that it belongs
    to. Connects nothing yet."""
    seconds = context.configuration.runtime.owner_timeout_seconds
    group = owners_group(context.name, flow.target)
    lease = FlowLease(
        flow,
        group=group,
        session_seconds=seconds,
        clock=context.clock,
        rules=selection_fingerprint(context.configuration.flow(flow)),
        on_owner=partial(context.standings.owner_changed, flow),
    )
    membership = context.memberships.get(flow.target)
    if membership is None:
        membership = context.memberships[flow.target] = Membership(
            target,
            service=context.name,
            group=group,
            name=partial(process_name, context),
            session_seconds=seconds,
            clock=context.clock,
            backoff=context.backoff(0.2, seconds / STEPS_PER_SESSION),
            mark=process_mark(),
            is_gone=is_gone,
        )
    membership.add(lease, megabytes_per_second=megabytes_per_second, reach=partial(_reach, context, flow))
    context.standings.add(flow, lease.is_owner)
    return lease


def _reach(context: ServiceContext, flow: Flow) -> Reach:
    if not context.configuration.flow(flow).enabled:
        return Reach.LOST  # The file of another process may copy it.
    for status in context.clusters.statuses((flow.source,)):
        if status.reachable:
            return Reach.FINE
        if status.since_ms and context.clock.now_ms() - status.since_ms > _LOST_AFTER_SECONDS * 1000:
            return Reach.LOST
    return Reach.UNKNOWN


def process_name(context: ServiceContext) -> OwnerName:
    """People need it to find the process, and callers to reach it."""
    host, port = socket.gethostname(), context.bound.number
    return OwnerName(process=f"{host}:{port}, process {os.getpid()}", address=address_of(context))


def address_of(context: ServiceContext) -> str:
    """HOST:PORT at which this process is called, once its port is bound."""
    places = context.configuration.endpoints[Service(context.name)]
    return own_address(
        endpoint=places.endpoint,
        listen=places.listen,
        port=context.bound.number,
        host=socket.gethostname(),
    )

"""How commands name what they are about: flows, partitions, scopes, callers."""

import getpass
import os
import socket
from collections.abc import Callable

from twinlog.api.common.v1 import types_pb2
from twinlog.errors import ConfigError
from twinlog.model import Flow


def parse_flow(name: str) -> types_pb2.Flow:
    """Raises ConfigError."""
    flow = flow_of(name)
    return types_pb2.Flow(source=flow.source, target=flow.target)


def flow_of(name: str) -> Flow:
    """Raises ConfigError."""
    try:
        return Flow.parse(name)
    except ValueError as error:
        raise ConfigError(str(error), key="FLOW") from None


def flow_name(flow: types_pb2.Flow) -> str:
    return f"{flow.source}->{flow.target}"


def partition_name(partition: types_pb2.TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def who(current_user: Callable[[], str] = getpass.getuser) -> str:
    """The caller's name, for the service's log and the flow's records."""
    try:
        user = current_user()
    except (KeyError, OSError):
        # Containers often run with a user number without a passwd entry.
        user = f"uid-{os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def shown_bytes(size: float) -> str:
    """`1.5 MB`: for people."""
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"

"""Requests written by hand: what goes to a broker as pieces that nobody joins, and is read in place.

aiokafka's own classes copy a request's bytes at every level of nesting and decode responses field by field.
`DataConnection` sends these; others are aiokafka's.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from aiokafka.errors import IncompatibleBrokerVersion

from twinlog.kafka.encoding import Frame

T = TypeVar("T")

Pieces = Sequence[bytes | memoryview]

_HEADER = struct.Struct(">hhih")
"""API key, version, correlation id, length of the client id: request header v1."""


class AgreedRequest(Generic[T]):
    """A request in the version that both sides speak, and the reader of its response."""

    __slots__ = ("_api_key", "_decode", "_version", "pieces", "sent_at")

    def __init__(
        self,
        api_key: int,
        version: int,
        pieces: Pieces,
        decode: Callable[[Frame, int, int], T],
    ) -> None:
        self._api_key = api_key
        self._version = version
        self.pieces = pieces
        """The body."""
        self.sent_at = 0.0
        """Loop time."""
        self._decode = decode

    def header(self, correlation_id: int, client_id: bytes) -> bytes:
        return _HEADER.pack(self._api_key, self._version, correlation_id, len(client_id)) + client_id

    def read(self, frame: Frame, position: int) -> T:
        """The response whose body begins at `position`; it may refer to the frame's bytes."""
        return self._decode(frame, position, self._version)


class HandWrittenRequest(Generic[T]):
    """`encode` and `decode` are told the version agreed on; header versions are those without tags."""

    def __init__(
        self,
        api_key: int,
        versions: range,
        encode: Callable[[int], Pieces],
        decode: Callable[[Frame, int, int], T],
    ) -> None:
        self._api_key = api_key
        self._versions = versions
        self._encode = encode
        self._decode = decode

    def prepare(self, broker_versions: Mapping[int, tuple[int, int]]) -> AgreedRequest[T]:
        """Raises IncompatibleBrokerVersion when the broker speaks no version of ours."""
        oldest, newest = broker_versions.get(self._api_key, (0, -1))
        version = min(newest, self._versions[-1])
        if version < max(oldest, self._versions[0]):
            raise IncompatibleBrokerVersion(
                f"the broker speaks versions {oldest} to {newest} of request {self._api_key}, "
                f"{self._versions[0]} to {self._versions[-1]} are needed"
            )
        return AgreedRequest(self._api_key, version, self._encode(version), self._decode)

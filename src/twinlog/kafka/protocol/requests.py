"""Hand-written requests: sent as separate pieces, and read in place.

aiokafka's own classes copy a request's bytes at every level of nesting and decode responses field by field.
`DataConnection` sends these; other requests are aiokafka's.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from aiokafka.errors import IncompatibleBrokerVersion

from twinlog.kafka.protocol.encoding import INT32, NO_TAGS, Frame, skip_tags
from twinlog.kafka.protocol.frames import LARGEST_FRAME_BYTES

T = TypeVar("T")

Pieces = Sequence[bytes | memoryview]
ThrottleOf = Callable[[Frame, int, T], int]
"""Returns throttle_time_ms from a response's frame, the position of its body and the decoded answer."""

_HEADER = struct.Struct(">hhih")
"""API key, version, correlation id, length of the client id: request header v1. Version 2 adds tagged
fields."""
_API_VERSIONS = 18
"""Its answer has the oldest header in every version, because the client does not know the broker's versions
yet."""


def first_field_throttle(frame: Frame, position: int, _answer: object) -> int:
    """throttle_time_ms if the response begins with it, as most do."""
    return int(INT32.unpack_from(frame, position)[0])


def no_throttle(_frame: Frame, _position: int, _answer: object) -> int:
    """For a response without a throttle time."""
    return 0


class AgreedRequest(Generic[T]):
    """A request in the version that both sides support, and the reader of its response."""

    __slots__ = (
        "_api_key",
        "_decode",
        "_is_flexible",
        "_throttle_of",
        "_version",
        "largest_answer_bytes",
        "pieces",
        "sent_at",
        "throttle_ms",
    )

    def __init__(
        self,
        api_key: int,
        version: int,
        pieces: Pieces,
        decode: Callable[[Frame, int, int], T],
        throttle_of: ThrottleOf[T],
        *,
        largest_answer_bytes: int,
        is_flexible: bool,
    ) -> None:
        self._api_key = api_key
        self._version = version
        self._throttle_of = throttle_of
        self.largest_answer_bytes = largest_answer_bytes
        self.throttle_ms = 0
        """Known once the response was read: for how long the broker reads nothing more from the connection
        (KIP-219)."""
        self._is_flexible = is_flexible
        self.pieces = pieces
        """The body."""
        self.sent_at = 0.0
        """Loop time."""
        self._decode = decode

    def header(self, correlation_id: int, client_id: bytes) -> bytes:
        header = _HEADER.pack(self._api_key, self._version, correlation_id, len(client_id)) + client_id
        return header + NO_TAGS if self._is_flexible else header

    def read(self, frame: Frame, position: int) -> T:
        """The response after its correlation id, at `position`; it may refer to the frame's bytes."""
        if self._is_flexible and self._api_key != _API_VERSIONS:
            position = skip_tags(frame, position)
        answer = self._decode(frame, position, self._version)
        self.throttle_ms = max(0, self._throttle_of(frame, position, answer))
        return answer


class HandWrittenRequest(Generic[T]):
    """`encode` and `decode` get the negotiated version, and only the bodies."""

    def __init__(
        self,
        api_key: int,
        versions: range,
        encode: Callable[[int], Pieces],
        decode: Callable[[Frame, int, int], T],
        *,
        flexible_from: int | None = None,
        throttle_of: ThrottleOf[T] = first_field_throttle,
        largest_answer_bytes: int = LARGEST_FRAME_BYTES,
    ) -> None:
        """From version `flexible_from` on the headers have tagged fields (KIP-482). An answer larger than
        `largest_answer_bytes` ends the connection before it is received."""
        self._largest_answer_bytes = largest_answer_bytes
        self.api_key = api_key
        self._versions = versions
        self._encode = encode
        self._decode = decode
        self._flexible_from = flexible_from
        self._throttle_of = throttle_of

    def prepare(self, broker_versions: Mapping[int, tuple[int, int]]) -> AgreedRequest[T]:
        """Raises IncompatibleBrokerVersion when the broker supports none of our versions."""
        oldest, newest = broker_versions.get(self.api_key, (0, -1))
        version = min(newest, self._versions[-1])
        if version < max(oldest, self._versions[0]):
            raise IncompatibleBrokerVersion(
                f"the broker speaks versions {oldest} to {newest} of request {self.api_key}, "
                f"{self._versions[0]} to {self._versions[-1]} are needed"
            )
        return AgreedRequest(
            self.api_key,
            version,
            self._encode(version),
            self._decode,
            self._throttle_of,
            largest_answer_bytes=self._largest_answer_bytes,
            is_flexible=self.is_flexible(version),
        )

    def is_flexible(self, version: int) -> bool:
        """Whether the headers of this version have tagged fields."""
        return self._flexible_from is not None and version >= self._flexible_from

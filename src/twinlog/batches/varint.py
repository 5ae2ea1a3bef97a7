"""Kafka's zigzag varints (varint and varlong).

The loops over records read them inline, because a call per number would cost more than the number.
"""

from twinlog.errors import WireFormatError

_TABLE_SIZE = 1 << 14
_UINT64_MASK = (1 << 64) - 1


def _encode(value: int) -> bytes:
    zigzag = ((value << 1) ^ (value >> 63)) & _UINT64_MASK
    encoded = bytearray()
    while zigzag > 0x7F:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)


SMALL_VARINTS: tuple[bytes, ...] = tuple(_encode(value) for value in range(_TABLE_SIZE))
"""The encoded forms of 0, 1, 2, …: offset deltas, lengths and most timestamp deltas."""


def encode_varint(value: int) -> bytes:
    """Encode a signed 64-bit number. Larger ones must be wrapped by the caller (`wrap_int64`)."""
    return SMALL_VARINTS[value] if 0 <= value < _TABLE_SIZE else _encode(value)


def decode_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return (value, position after it). Raises WireFormatError when the number does not end."""
    shift = 0
    zigzag = 0
    while shift < 70:
        try:
            byte = data[position]
        except IndexError:
            break
        position += 1
        zigzag |= (byte & 0x7F) << shift
        if byte < 0x80:
            zigzag &= _UINT64_MASK
            return (zigzag >> 1) ^ -(zigzag & 1), position
        shift += 7
    raise WireFormatError("a varint has no end", reason="CORRUPT_BATCH")


def wrap_int64(value: int) -> int:
    """Wrap a sum or difference of two 64-bit numbers into 64 bits, as Java does."""
    value &= _UINT64_MASK
    return value - (1 << 64) if value >> 63 else value

"""Messages of the formats v0 and v1, as in logs of Kafka before 0.11."""

import struct
import zlib

from twinlog.batches.codec import Codec, compress


def old_message(
    offset: int,
    key: bytes | None,
    value: bytes | None,
    *,
    magic: int = 1,
    attributes: int = 0,
    timestamp_ms: int = 1_500_000_000_000,
) -> bytes:
    body = struct.pack(">bb", magic, attributes)
    body += struct.pack(">q", timestamp_ms) if magic == 1 else b""
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def old_wrapper(offset: int, inner: bytes, *, magic: int = 1, codec: Codec = Codec.GZIP) -> bytes:
    """A compressed message around others; `offset` is that of its last one. Inner offsets of v1 begin at
    0."""
    return old_message(offset, None, compress(codec, inner), magic=magic, attributes=codec)

"""Bytes as others may send them: valid ones with something wrong."""

import struct

from hypothesis import strategies as st

from twinlog.model import TopicPartition

PARTITION = TopicPartition("orders", 3)
EXTREMES = [0, 1, 0x7F, 0x80, 0xFF]
WORDS = [-1, 0, 1, 1 << 15, (1 << 31) - 1, -(1 << 31)]


@st.composite
def damaged(draw: st.DrawFn, originals: list[bytes]) -> bytes:
    """One of the originals with some bytes flipped, set, cut out or put in; sometimes any bytes at all."""
    data = bytearray(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        match draw(st.sampled_from(["set", "flip", "word", "cut", "tail", "insert", "any"])):
            case "set" if data:
                data[at] = draw(st.sampled_from(EXTREMES))
            case "flip" if data:
                data[at] ^= 1 << draw(st.integers(0, 7))
            case "word":
                data[at : at + 4] = struct.pack(">i", draw(st.sampled_from(WORDS)))
            case "cut":
                del data[at : at + draw(st.integers(1, 8))]
            case "tail":
                del data[at:]
            case "insert":
                data[at:at] = draw(st.binary(max_size=8)) * draw(st.sampled_from([1, 1, 100]))
            case "any":
                data = bytearray(draw(st.binary(max_size=200)))
    return bytes(data)

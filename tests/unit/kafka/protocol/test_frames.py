"""Frames cut from a stream of bytes, however the network cuts it."""

import struct

import pytest
from aiokafka.errors import KafkaConnectionError
from hypothesis import given
from hypothesis import strategies as st

from twinlog.kafka.errors import translate
from twinlog.kafka.protocol.frames import (
    LARGEST_FRAME_BYTES,
    SMALL_FRAME_BYTES,
    Frame,
    FrameProtocol,
    FrameTooLargeError,
)


class Receiver:
    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.losses: list[BaseException | None] = []
        self.protocol = FrameProtocol(self.frames.append, self.losses.append)

    def receive(self, data: bytes) -> None:
        """As an event loop hands bytes over: at most what the buffer takes at a time."""
        while data and not self.protocol.at_eof():
            buffer = self.protocol.get_buffer(-1)
            count = min(len(buffer), len(data))
            assert count, "an empty buffer would end the connection"
            buffer[:count] = data[:count]
            data = data[count:]
            self.protocol.buffer_updated(count)


def on_the_wire(*frames: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


SIZES = st.sampled_from(
    (0, 1, 3, 100, SMALL_FRAME_BYTES - 5, SMALL_FRAME_BYTES - 4, SMALL_FRAME_BYTES, 3 * SMALL_FRAME_BYTES)
)


@given(sizes=st.lists(SIZES, max_size=6), cuts=st.lists(st.integers(1, 2 * SMALL_FRAME_BYTES), max_size=8))
def test_frames_are_the_same_however_the_stream_is_cut(sizes: list[int], cuts: list[int]) -> None:
    frames = [bytes((number + 1,)) * size for number, size in enumerate(sizes)]
    stream, receiver = on_the_wire(*frames), Receiver()

    for cut in cuts:
        receiver.receive(stream[:cut])
        stream = stream[cut:]
    receiver.receive(stream)

    assert receiver.frames == frames


@given(sizes=st.lists(SIZES, max_size=6), cuts=st.lists(st.integers(1, 2 * SMALL_FRAME_BYTES), max_size=8))
def test_connections_that_share_their_buffer_keep_their_frames(sizes: list[int], cuts: list[int]) -> None:
    frames = [[bytes((16 * end + number,)) * size for number, size in enumerate(sizes)] for end in (1, 2)]
    streams, receivers = [on_the_wire(*each) for each in frames], [Receiver(), Receiver()]

    for cut in [*cuts, sum(sizes) + 4 * len(sizes)]:
        for receiver, stream in zip(receivers, streams, strict=True):
            receiver.receive(stream[:cut])
        streams = [stream[cut:] for stream in streams]

    assert [receiver.frames for receiver in receivers] == frames


def test_a_connection_that_waits_has_no_buffer_of_its_own() -> None:
    waiting, other = Receiver(), Receiver()
    waiting.receive(on_the_wire(b"first") + b"\0\0")

    assert waiting.protocol.get_buffer(-1).obj is other.protocol.get_buffer(-1).obj


@given(frames=st.lists(st.binary(max_size=20), max_size=5))
def test_single_bytes_make_whole_frames(frames: list[bytes]) -> None:
    receiver = Receiver()

    for byte in on_the_wire(*frames):
        receiver.receive(bytes((byte,)))

    assert receiver.frames == frames


def test_a_buffer_may_be_asked_for_while_a_frame_is_delivered() -> None:
    """As TLS does when the receiver closes the connection."""
    receiver = Receiver()

    def close(frame: Frame) -> None:
        assert receiver.protocol.get_buffer(-1)
        receiver.frames.append(frame)

    receiver.protocol = FrameProtocol(close, receiver.losses.append)

    receiver.receive(on_the_wire(b"last"))

    assert receiver.frames == [b"last"]


@pytest.mark.parametrize("size", [-1, LARGEST_FRAME_BYTES + 1])
def test_a_size_that_cannot_be_ends_the_connection(size: int) -> None:
    receiver = Receiver()

    receiver.receive(on_the_wire(b"good") + struct.pack(">i", size) + b"x" * 50)

    assert receiver.frames == [b"good"]
    assert [type(loss) for loss in receiver.losses] == [FrameTooLargeError]
    assert receiver.protocol.at_eof()


def test_a_tls_alert_is_no_answer_that_is_too_large() -> None:
    """A port with TLS that is asked without: a broker that cannot be reached this way, tried again."""
    receiver = Receiver()

    receiver.receive(bytes.fromhex("15 03 03 00 02 02 50"))

    (loss,) = receiver.losses
    assert type(loss) is ConnectionError
    assert "security.protocol" in str(loss)


def test_the_loss_of_the_connection_is_told_with_its_error() -> None:
    receiver, error = Receiver(), OSError("reset")

    receiver.protocol.connection_lost(error)

    assert receiver.losses == [error]
    assert receiver.protocol.at_eof()


def test_a_large_frame_is_received_where_it_stays() -> None:
    receiver = Receiver()
    receiver.receive(struct.pack(">i", SMALL_FRAME_BYTES) + b"ab")

    rest = receiver.protocol.get_buffer(-1)
    assert len(rest) == SMALL_FRAME_BYTES - 2
    rest[:] = b"c" * len(rest)
    receiver.protocol.buffer_updated(len(rest))

    assert rest.obj is receiver.frames[0]
    assert receiver.frames == [b"ab" + b"c" * (SMALL_FRAME_BYTES - 2)]


def test_a_frame_larger_than_what_was_asked_for_ends_the_connection_before_it_is_received() -> None:
    receiver = Receiver()
    asked_bytes = 2 * SMALL_FRAME_BYTES
    receiver.protocol = FrameProtocol(receiver.frames.append, receiver.losses.append, lambda: asked_bytes)

    receiver.receive(on_the_wire(bytes(asked_bytes)) + struct.pack(">i", asked_bytes + 1) + b"x" * 50)

    assert receiver.frames == [bytes(asked_bytes)]
    assert [type(loss) for loss in receiver.losses] == [FrameTooLargeError]


def test_an_answer_that_is_too_large_is_a_fault_of_its_own_and_not_one_of_the_connection() -> None:
    """As the client raises it: the connection was closed, because of this."""
    closed = KafkaConnectionError("closed")
    closed.__cause__ = FrameTooLargeError("a frame of 300000000 bytes")
    error = translate(closed, "fetch", alias="A")
    assert (error.reason, error.retriable) == ("ANSWER_TOO_LARGE", False)
    assert "300000000" in str(error)
    assert translate(KafkaConnectionError("closed"), "fetch").reason == "KAFKA_UNAVAILABLE"

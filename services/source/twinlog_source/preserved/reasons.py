"""The reasons of preserved copies."""

from enum import StrEnum


class PreservedReason(StrEnum):
    BOTH_WAYS = "BOTH_WAYS"
    """The source has copies of what the target has already."""
    FOREIGN_WRITE = "FOREIGN_WRITE"
    MARKER_REPEATED = "MARKER_REPEATED"
    """The target has the end of a transaction where the source has a record (KAFKA-19999)."""
    HOLE_TOO_LONG = "HOLE_TOO_LONG"
    HOLES_TOO_FREQUENT = "HOLES_TOO_FREQUENT"
    FILL_REFUSED = "FILL_REFUSED"
    SOURCE_TRUNCATED = "SOURCE_TRUNCATED"
    HIGH_WATERMARK_BEHIND = "HIGH_WATERMARK_BEHIND"
    """A back-off: the leader has records that not all replicas have, so the end is read again."""
    TARGET_LOST_TAIL = "TARGET_LOST_TAIL"
    """A back-off: the records that the target lost are copied again."""
    TARGET_RECREATED = "TARGET_RECREATED"
    """A back-off: the target topic was recreated, which the driver will notice."""

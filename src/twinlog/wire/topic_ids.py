"""The ids of a topic and of its copy, in a header of offset syncs and checkpoints where names are kept.

A record says by it of which logs its offsets are: a topic that is deleted and created again has another id.
MM2 has no such header, and does not read it.
"""

from typing import NamedTuple

from twinlog.model import Headers

HEADER = "twinlog.topics"


class TopicIds(NamedTuple):
    """Kafka's ids, in url-safe base64; "" where a broker has none, or there is no such topic."""

    source: str
    target: str

    def reversed(self) -> "TopicIds":
        return TopicIds(self.target, self.source)


def topic_ids_headers(ids: TopicIds | None) -> Headers:
    return () if ids is None else ((HEADER, f"{ids.source} {ids.target}".encode()),)


def topic_ids_of(headers: Headers) -> TopicIds | None:
    """None for a record of MM2, or of a release that named none."""
    for name, value in headers:
        if name == HEADER and value is not None and value.count(b" ") == 1:
            source, target = value.decode("latin-1").split(" ")
            return TopicIds(source, target)
    return None

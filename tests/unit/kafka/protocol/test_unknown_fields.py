"""A field that a later broker adds to a known version of an answer."""

import pytest

from twinlog.kafka.protocol.requests import API_KEYS, SchemaRequest

_API = "delete_topics"
_HEADER = b"\0"
_NO_TOPICS_4 = bytes(4) + b"\x01"
"""Version 4: no throttle, an empty array."""
_NO_TOPICS_3 = bytes(8)
_OWN_FIELD = b"\x01\x63\x02ab"
"""One tagged field, with the tag 99."""


def test_an_answer_with_a_field_of_a_later_broker_is_asked_for_in_an_earlier_version() -> None:
    offered = {API_KEYS[_API]: (0, 4)}
    request = SchemaRequest(_API, range(1, 5), {"topic_names": (), "timeout": 0})
    assert request.prepare(offered).read(_HEADER + _NO_TOPICS_4 + b"\0", 0).responses == ()
    with pytest.raises(ValueError, match="delete_topics v4: 'Unknown tagged field tag: 99'"):
        request.prepare(offered).read(_HEADER + _NO_TOPICS_4 + _OWN_FIELD, 0)
    assert request.prepare(offered).read(_NO_TOPICS_3, 0).responses == ()

"""The header that names the topics which offsets are of."""

from hypothesis import given
from hypothesis import strategies as st

from twinlog.wire.topic_ids import HEADER, TopicIds, topic_ids_headers, topic_ids_of

_IDS = st.text("abcXYZ019-_", max_size=22)


@given(_IDS, _IDS)
def test_ids_are_read_as_they_were_written(source: str, target: str) -> None:
    ids = TopicIds(source, target)
    others = (("other", b"x y"), (HEADER, None))
    assert topic_ids_of((*others, *topic_ids_headers(ids))) == ids
    assert ids.reversed().reversed() == ids


@given(
    st.lists(st.tuples(st.sampled_from([HEADER, "other"]), st.none() | st.binary(max_size=60)), max_size=3)
)
def test_whatever_stands_there_is_no_error(headers: list[tuple[str, bytes | None]]) -> None:
    found = topic_ids_of(tuple(headers))
    assert found is None or HEADER in dict(headers)


def test_a_record_of_mirrormaker_2_names_none() -> None:
    assert topic_ids_headers(None) == ()
    assert topic_ids_of(()) is None

"""Connect's transforms, record by record."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.batches.bodies import DecodedRecord, RawHeaders, decode_record, encode_body
from twinlog.errors import ConfigError
from twinlog.transforms import BoundChain, Chain, chain_from_config
from twinlog.transforms.date_format import parse_date_format
from twinlog.transforms.parts import RecordParts

AT_MS = 1_732_800_000_123
"""2024-11-28T13:20:00.123Z, a Thursday."""


def chain(text: str) -> Chain:
    return chain_from_config(dict(line.strip().split("=", 1) for line in text.strip().splitlines()))


def passed(
    bound: BoundChain, value: bytes | None = b"v", headers: RawHeaders = (), key: bytes | None = b"k"
) -> tuple[str, DecodedRecord] | None:
    outcome = bound.apply((7, AT_MS, encode_body(key, value, headers)))
    return None if outcome is None else (outcome.topic, decode_record(outcome.record))


def test_a_filter_drops_the_records_for_which_its_predicate_holds() -> None:
    bound = chain("""
        transforms=drop
        transforms.drop.type=org.apache.kafka.connect.transforms.Filter
        transforms.drop.predicate=internal
        predicates=internal
        predicates.internal.type=org.apache.kafka.connect.transforms.predicates.HasHeaderKey
        predicates.internal.name=internal
    """).bind("A.orders")
    assert passed(bound, headers=((b"internal", b"1"),)) is None
    assert passed(bound, headers=((b"other", b"internal"),)) is not None
    assert passed(bound, value=b"internal") is not None


def test_negate_turns_a_predicate_round() -> None:
    bound = chain("""
        transforms=keep
        transforms.keep.type=Filter
        transforms.keep.predicate=deleted
        transforms.keep.negate=true
        predicates=deleted
        predicates.deleted.type=RecordIsTombstone
    """).bind("A.orders")
    assert passed(bound, value=b"") is None
    assert passed(bound, value=None) == ("A.orders", DecodedRecord(7, AT_MS, b"k", None, ()))


def test_headers_are_dropped_by_key_and_inserted_at_the_end() -> None:
    bound = chain("""
        transforms=drop,insert
        transforms.drop.type=DropHeaders
        transforms.drop.headers=secret, trace
        transforms.insert.type=InsertHeader
        transforms.insert.header=herkunft
        transforms.insert.value.literal=Köln
    """).bind("A.orders")
    headers = ((b"trace", b"1"), (b"herkunft", None), (b"secret", b"\xff"), (b"secret", b"2"), (b"\xfe", b""))
    outcome = passed(bound, headers=headers)
    assert outcome is not None
    assert outcome[1].headers == ((b"herkunft", None), (b"\xfe", b""), (b"herkunft", "Köln".encode()))
    assert outcome[1].value == b"v"


def test_a_record_that_no_step_changes_keeps_its_very_bytes() -> None:
    bound = chain("transforms=d\ntransforms.d.type=DropHeaders\ntransforms.d.headers=x").bind("A.orders")
    record = (1, -1, encode_body(None, b"x", ((b"y", b"x"),)))
    outcome = bound.apply(record)
    assert outcome is not None
    assert outcome.record[2] is record[2]


@pytest.mark.parametrize(
    ("regex", "replacement", "topic", "routed"),
    [
        (r"A\.(.*)", "$1", "A.orders", "orders"),
        (r"A\.(.*)", "$1", "B.A.orders", "B.A.orders"),
        (r"(?<site>[A-Z])\.(.*)", r"${site}-$2\$", "A.orders", "A-orders$"),
        ("a|ab", "X", "ab", "Xb"),
        (".*?", "X", "orders", "Xorders"),
        ("(a)(b)?", "[$2]$11", "a", "[]a1"),
    ],
)
def test_a_regex_router_replaces_as_java_does(regex: str, replacement: str, topic: str, routed: str) -> None:
    bound = chain_from_config(
        {
            "transforms": "r",
            "transforms.r.type": "RegexRouter",
            "transforms.r.regex": regex,
            "transforms.r.replacement": replacement,
        }
    ).bind(topic)
    assert (bound.topic, bound.only_renames) == (routed, True)


def test_a_timestamp_router_names_topics_by_day() -> None:
    bound = chain("transforms=t\ntransforms.t.type=TimestampRouter").bind("A.orders")
    assert bound.routes
    assert passed(bound) == ("A.orders-20241128", DecodedRecord(7, AT_MS, b"k", b"v", ()))


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "2024-11-28T13:20:00.123Z"),
        ("yy MMM MMMM EEE EEEE u", "24 Nov November Thu Thursday 4"),
        ("D w W F a h K k ''", "333 48 5 4 PM 1 1 13 '"),
        ("YYYY z Z", "2024 UTC +0000"),
    ],
)
def test_dates_are_written_as_by_simple_date_format(written: str, expected: str) -> None:
    assert parse_date_format(written).of(AT_MS) == expected


def test_the_week_of_the_first_of_january_belongs_to_the_new_year() -> None:
    at_ms = 1_735_603_200_000  # 2024-12-31, a Tuesday
    assert parse_date_format("YYYY-ww yyyy").of(at_ms) == "2025-01 2024"


def test_a_predicate_sees_the_name_that_an_earlier_router_gave() -> None:
    bound = chain("""
        transforms=route,drop
        transforms.route.type=RegexRouter
        transforms.route.regex=A\\.(.*)
        transforms.route.replacement=$1
        transforms.drop.type=Filter
        transforms.drop.predicate=plain
        predicates=plain
        predicates.plain.type=TopicNameMatches
        predicates.plain.pattern=orders
    """)
    assert bound.bind("A.orders").drops_all
    assert bound.bind("A.items").only_renames


_PREDICATES = {
    "predicates": "header,tombstone,name",
    "predicates.header.type": "HasHeaderKey",
    "predicates.header.name": "h",
    "predicates.tombstone.type": "RecordIsTombstone",
    "predicates.name.type": "TopicNameMatches",
    "predicates.name.pattern": "A.*",
}
_KINDS = {
    "Filter": {},
    "DropHeaders": {"headers": "h"},
    "InsertHeader": {"header": "h", "value.literal": "1"},
    "RegexRouter": {"regex": "(.)(.*)", "replacement": "$2$1"},
    "TimestampRouter": {},
}
steps_of_chains = st.lists(
    st.tuples(
        st.sampled_from(sorted(_KINDS)), st.sampled_from(["", "header", "tombstone", "name"]), st.booleans()
    ),
    max_size=5,
)


@given(steps=steps_of_chains)
def test_a_bound_chain_gives_each_record_the_outcome_of_its_steps(steps: list[tuple[str, str, bool]]) -> None:
    values = {**_PREDICATES, "transforms": ",".join(f"t{i}" for i in range(len(steps)))}
    for i, (kind, predicate, negate) in enumerate(steps):
        values |= {f"transforms.t{i}.type": kind} | {
            f"transforms.t{i}.{k}": v for k, v in _KINDS[kind].items()
        }
        if predicate:
            values |= {
                f"transforms.t{i}.predicate": predicate,
                f"transforms.t{i}.negate": str(negate).lower(),
            }
    whole = chain_from_config(values)
    for topic, value, headers in product(("A.o", "B"), (None, b"v"), ((), ((b"h", b"x"),))):
        body = encode_body(b"k", value, headers)
        parts = RecordParts(topic, AT_MS, body)
        passes = all(not step.applies(parts) or step.transform.apply(parts) for step in whole.steps)
        expected = (parts.topic, (3, AT_MS, parts.body)) if passes else None
        bound = whole.bind(topic)
        assert bound.apply((3, AT_MS, body)) == expected
        if not bound.routes and expected:
            assert bound.topic == expected[0]


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"transforms": "x"}, "transforms.x.type: must have a value"),
        ({"transforms": "x", "transforms.x.type": "org.apache.kafka.connect.transforms.MaskField$Value"},
         "transforms.x.type: Twinlog does not have the transform org.apache.kafka.connect.transforms.Mask"),
        ({"transforms": "x,x", "transforms.x.type": "Filter"}, "transforms: names 'x' twice"),
        ({"transforms": "x", "transforms.x.type": "Filter", "transforms.x.predicate": "p"},
         "transforms.x.predicate: predicates does not name 'p'"),
        ({"transforms": "x", "transforms.x.type": "Filter", "transforms.x.negate": "true"},
         "transforms.x.negate: there is no transforms.x.predicate that it could negate"),
        ({"transforms": "x", "transforms.x.type": "RegexRouter", "transforms.x.regex": "(",
          "transforms.x.replacement": ""}, "transforms.x.regex: is not a valid regular expression"),
        ({"transforms": "x", "transforms.x.type": "RegexRouter", "transforms.x.regex": "a",
          "transforms.x.replacement": "$1"}, "transforms.x.replacement: names the group $1, and"),
        ({"transforms": "x", "transforms.x.type": "TimestampRouter", "transforms.x.timestamp.format": "y'"},
         "transforms.x.timestamp.format: has a quote (') that does not end"),
        ({"transforms": "x", "transforms.x.type": "DropHeaders"}, "transforms.x.headers: must have a value"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named_by_its_key(values: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        chain_from_config(values)
    assert str(raised.value).startswith(problem)


def test_all_problems_are_told_at_once() -> None:
    values = {"transforms": "a,b", "transforms.a.type": "Cast$Key", "transforms.b.type": "Flatten$Value"}
    with pytest.raises(ConfigError) as raised:
        chain_from_config(values)
    assert [line.partition(":")[0] for line in str(raised.value).splitlines()] == [
        "transforms.a.type", "transforms.b.type",
    ]  # fmt: skip

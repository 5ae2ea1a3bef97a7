"""Connect's transforms, record by record."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.batches.bodies import DecodedRecord, RawHeaders, decode_record, encode_body
from twinlog.errors import ConfigError
from twinlog.transforms import (
    BoundChain,
    Chain,
    DropHeaders,
    Filter,
    HasHeaderKey,
    InsertHeader,
    RecordIsTombstone,
    RegexRouter,
    TimestampRouter,
    TopicNameMatches,
    chain_from_config,
)
from twinlog.transforms.java_dates import java_date_format

AT_MS = 1_732_800_000_123
"""2024-11-28T13:20:00.123Z, a Thursday."""


def chain(text: str) -> Chain:
    return chain_from_config(dict(line.strip().split("=", 1) for line in text.strip().splitlines()))


def passed(
    bound: BoundChain, value: bytes | None = b"v", headers: RawHeaders = (), key: bytes | None = b"k"
) -> tuple[str, DecodedRecord] | None:
    records = bound.apply([(7, AT_MS, encode_body(key, value, headers))])
    return (bound.topic, decode_record(records[0])) if records else None


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
    assert bound.apply([record])[0] is record


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
    assert bound == BoundChain(routed)


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
    assert passed(bound.bind("A.orders")) is None
    assert bound.bind("A.items") == BoundChain("items")


def test_a_router_with_a_predicate_on_names_gives_a_topic_one_name_and_one_on_records_several() -> None:
    router = {
        "transforms": "r", "transforms.r.type": "RegexRouter", "transforms.r.regex": "(.*)",
        "transforms.r.replacement": "x-$1", "transforms.r.predicate": "p", "transforms.r.negate": "true",
        "predicates": "p",
    }  # fmt: skip
    names = {"predicates.p.type": "TopicNameMatches", "predicates.p.pattern": "A.*"}
    assert [chain_from_config(router | names).bind(topic).topic for topic in ("A.o", "B")] == ["A.o", "x-B"]
    bound = chain_from_config(router | {"predicates.p.type": "RecordIsTombstone"}).bind("A.o")
    deleted, kept = (1, AT_MS, encode_body(b"k", None, ())), (2, AT_MS, encode_body(b"k", b"v", ()))
    assert list(bound.route([deleted, kept])) == [("A.o", deleted), ("x-A.o", kept)]
    assert (bound.topic, bound.apply([deleted, kept]), bound.drops_records) == ("A.o", [deleted], True)


def test_records_are_routed_by_their_timestamps_and_what_follows_sees_the_new_name() -> None:
    bound = chain("""
        transforms=day,mark,short
        transforms.day.type=TimestampRouter
        transforms.mark.type=InsertHeader
        transforms.mark.header=late
        transforms.mark.value.literal=1
        transforms.mark.predicate=later
        transforms.short.type=RegexRouter
        transforms.short.regex=A-(.*)
        transforms.short.replacement=$1
        predicates=later
        predicates.later.type=TopicNameMatches
        predicates.later.pattern=.*-20241129
    """).bind("A-o")
    body, marked = encode_body(b"k", b"v", ()), encode_body(b"k", b"v", ((b"late", b"1"),))
    records = [(1, AT_MS, body), (2, AT_MS + 86_400_000, body), (3, AT_MS, body)]
    assert list(bound.route(records)) == [
        ("o-20241128", records[0]),
        ("o-20241129", (2, AT_MS + 86_400_000, marked)),
        ("o-20241128", records[2]),
    ]
    assert (bound.topic, bound.apply(records)) == ("o", [])


@pytest.mark.parametrize(
    ("pattern", "written"),
    [
        ("yyyyMMdd", "20241128"),
        ("yy.M.d", "24.11.28"),
        ("y-MM-dd'T'HH.mm.ss.SSS", "2024-11-28T13.20.00.123"),
        ("yyyyyy_DDD_SSSSS''_'it''s'", "002024_333_00123'_it's"),
        ("H'o''clock'", "13o'clock"),
    ],
)
def test_moments_are_written_as_by_java_in_utc(pattern: str, written: str) -> None:
    assert java_date_format(pattern).of(AT_MS) == written


@pytest.mark.parametrize(
    ("at_ms", "written"),
    [
        (-1, "1969-12-31-365 23:59:59.999 69"),
        (951_782_400_000, "2000-02-29-060 00:00:00.000 00"),
        (253_402_300_800_000, "10000-01-01-001 00:00:00.000 00"),
        (2_000_000_000_000_000, "65347-06-24-175 03:33:20.000 47"),
        ((1 << 63) - 1, "292278994-08-17-229 07:12:55.807 94"),
    ],
)
def test_any_timestamp_of_a_record_is_written(at_ms: int, written: str) -> None:
    assert java_date_format("y-MM-dd-DDD HH:mm:ss.SSS yy").of(at_ms) == written


@pytest.mark.parametrize("pattern", ["MMM", "yyyy-'W'ww", "EEE", "hh a", "yyyy 'open", "zzz", "YYYY"])
def test_names_weeks_and_zones_are_refused(pattern: str) -> None:
    values = {"transforms": "x", "transforms.x.type": "TimestampRouter"}
    with pytest.raises(ConfigError, match=r"transforms\.x\.timestamp\.format: "):
        chain_from_config(values | {"transforms.x.timestamp.format": pattern})


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
    "TimestampRouter": {"timestamp.format": "dd"},
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
        bound = whole.bind(topic)
        record = DecodedRecord(3, AT_MS, b"k", value, headers)
        expected = _by_hand(whole, topic, record)
        records = [(3, AT_MS, encode_body(b"k", value, headers))]
        found = [(name, decode_record(each)) for name, each in bound.route(records)]
        assert found == ([] if expected is None else [expected])
        assert [decode_record(each) for each in bound.apply(records)] == [
            each for name, each in found if name == bound.topic
        ]
        assert bound.fork is not None or all(name == bound.topic for name, _ in found)


def _by_hand(whole: Chain, topic: str, record: DecodedRecord) -> tuple[str, DecodedRecord] | None:
    """Each step on decoded records, as Connect does it."""
    for step in whole.steps:
        match step.predicate:
            case HasHeaderKey(key):
                holds = any(name == key for name, _ in record.headers)
            case RecordIsTombstone():
                holds = record.value is None
            case TopicNameMatches(pattern):
                holds = pattern.fullmatch(topic) is not None
            case None:
                holds = not step.negate
        if holds is step.negate:
            continue
        match step.transform:
            case Filter():
                return None
            case DropHeaders(keys):
                record = record._replace(
                    headers=tuple(each for each in record.headers if each[0] not in keys)
                )
            case InsertHeader(key, value):
                record = record._replace(headers=(*record.headers, (key, value)))
            case RegexRouter() as router:
                topic = router.routed(topic)
            case TimestampRouter():
                topic += "-28"
    return topic, record


@given(
    key=st.none() | st.binary(max_size=20000),
    value=st.none() | st.binary(max_size=20000),
    headers=st.lists(
        st.tuples(st.sampled_from([b"", b"h", b"hh"]), st.none() | st.just(b"\x02h")), max_size=3
    ),
)
def test_headers_and_tombstones_are_found_wherever_their_bytes_stand_too(
    key: bytes | None, value: bytes | None, headers: list[tuple[bytes, bytes | None]]
) -> None:
    body = encode_body(key, value, tuple(headers))
    assert HasHeaderKey(b"h").holds(body) is any(name == b"h" for name, _ in headers)
    kept = tuple(header for header in headers if header[0] != b"h")
    assert DropHeaders(frozenset({b"h"})).change(body) == encode_body(key, value, kept)
    assert RecordIsTombstone().holds(body) is (value is None)


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
        ({"transforms": "x", "transforms.x.type": "Filter", "transforms.x.predicate": "p",
          "transforms.x.negate": "true "},
         "transforms.x.negate: must be true or false, not 'true ': Kafka Connect takes that for false"),
        ({"transforms": "x", "transforms.x.type": "RegexRouter", "transforms.x.regex": "(",
          "transforms.x.replacement": ""}, "transforms.x.regex: is not a valid regular expression"),
        ({"transforms": "x", "transforms.x.type": "RegexRouter", "transforms.x.regex": "a",
          "transforms.x.replacement": "$1"}, "transforms.x.replacement: names the group $1, and"),
        ({"transforms": "x", "transforms.x.type": "Flatten$Key"},
         "transforms.x.type: Twinlog does not have the transform Flatten$Key; it has Filter, "),
        ({"transforms": "x", "transforms.x.type": "DropHeaders"}, "transforms.x.headers: must have a value"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named_by_its_key(values: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        chain_from_config(values)
    assert str(raised.value).startswith(problem)


@pytest.mark.parametrize(
    ("kind", "instead"),
    [
        ("MaskField$Value", "; twinlog.transform.value can do that (docs/transforms.md)"),
        ("ReplaceField$Key", "; twinlog.transform.key can do that (docs/transforms.md)"),
        ("ValueToKey", "; twinlog.transform.key can do that (docs/transforms.md)"),
        ("HeaderFrom$Value", "; twinlog.transform.headers can do that (docs/transforms.md)"),
        ("com.example.Own", "wants changed"),
    ],
)
def test_what_is_not_known_is_told_with_what_does_the_same(kind: str, instead: str) -> None:
    with pytest.raises(ConfigError) as raised:
        chain_from_config({"transforms": "x", "transforms.x.type": kind})
    assert str(raised.value).endswith(instead)


def test_all_problems_are_told_at_once() -> None:
    values = {"transforms": "a,b", "transforms.a.type": "Cast$Key", "transforms.b.type": "Flatten$Value"}
    with pytest.raises(ConfigError) as raised:
        chain_from_config(values)
    assert [line.partition(":")[0] for line in str(raised.value).splitlines()] == [
        "transforms.a.type", "transforms.b.type",
    ]  # fmt: skip

"""The keys `twinlog.transform.*` as values."""

import pytest

from twinlog.batches import encode_body
from twinlog.errors import ConfigError
from twinlog.policy.transformed import TopicTransforms
from twinlog.transforms.expressions import (
    ORIGIN_HEADER,
    Expressions,
    OnError,
    expressions_of,
    origin_of,
    problems_of_expressions,
)


def test_a_flow_without_these_keys_has_none() -> None:
    assert expressions_of({"transforms": "a", "twinlog.transform.on.error": "skip"}) is None


def test_all_keys_are_read() -> None:
    found = expressions_of(
        {
            "twinlog.transform.topics": "orders, pay.*",
            "twinlog.transform.where": " key IS NOT NULL ",
            "twinlog.transform.timestamp": "timestamp",
            "twinlog.transform.value": "value",
            "twinlog.transform.python": "a.b:c",
            "twinlog.transform.on.error": "skip",
            "twinlog.transform.timeout.seconds": "5",
            "twinlog.provenance.headers": "true",
        }
    )
    assert found == Expressions(
        topics=("orders", "pay.*"),
        where="key IS NOT NULL",
        columns=(("value", "value"), ("timestamp", "timestamp")),
        python="a.b:c",
        on_error=OnError.SKIP,
        timeout_seconds=5,
        names_origins=True,
    )
    alone = expressions_of({"twinlog.transform.topics": "a", "twinlog.provenance.headers": "true"})
    assert alone == Expressions(topics=("a",), names_origins=True)
    assert tuple(found.written) == (
        "twinlog.transform.where",
        "twinlog.transform.value",
        "twinlog.transform.timestamp",
        "twinlog.transform.python",
    )


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"where": "true"}, "twinlog.transform.where: needs twinlog.transform.topics"),
        ({"topics": "a"}, "twinlog.transform.topics: nothing is done"),
        ({"topics": "a(", "where": "true"}, "twinlog.transform.topics: "),
        ({"topics": "a", "python": "a.b"}, "twinlog.transform.python: must be package.module:function"),
        ({"topics": "a", "partition": "1"}, "twinlog.transform.partition: there is no such key"),
    ],
)
def test_a_problem_names_its_key(values: dict[str, str], problem: str) -> None:
    config = {f"twinlog.transform.{key}": value for key, value in values.items()}
    assert [each[: len(problem)] for each in problems_of_expressions(config)] == [problem]
    with pytest.raises(ConfigError):
        expressions_of(config)


def test_topics_are_the_sources_without_internal_ones() -> None:
    config = {
        "clusters": "A, B",
        "twinlog.transform.topics": ".*",
        "twinlog.transform.where": "key IS NOT NULL",
    }
    transforms = TopicTransforms(config, "A")
    assert transforms.expressions("orders") is not None
    assert transforms.dropped_by("orders") == "twinlog.transform.topics"
    assert transforms.changes("orders") is None
    assert transforms.expressions("heartbeats") is None
    assert transforms.expressions("mm2-offsets.A.internal") is None


@pytest.mark.parametrize(
    ("told", "origin"), [(b"7/-1", (7, -1)), (b"", None), (b"-7/1", None), (b"9" * 5000 + b"/1", None)]
)
def test_an_origin_that_somebody_else_has_written_is_no_error(
    told: bytes, origin: tuple[int, int] | None
) -> None:
    record = (0, 0, encode_body(None, None, ((ORIGIN_HEADER, b"A/t/0/" + told),)))
    assert origin_of(record, b"A/t/0/") == origin

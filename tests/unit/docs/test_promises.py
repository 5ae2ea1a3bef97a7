"""What tests/README.md and tests/tiers.py name exists."""

import re
from pathlib import Path

from tiers import beginnings, tier_of

TESTS = Path(__file__).parents[2]
PROMISES = (TESTS / "README.md").read_text().partition("## Promises")[2]


def test_each_promise_has_tests_that_exist() -> None:
    rows = re.findall(r"^\| (.+?) \| (`.+) \|$", PROMISES, re.MULTILINE)
    assert len(rows) >= 30
    for promise, tests in rows:
        for path in re.findall(r"`([^`]+)`", tests):
            assert re.search(r"def test_|Contract\)", (TESTS / path).read_text()), promise


def test_each_tier_is_of_tests_that_exist() -> None:
    for begin in beginnings():
        path, _, test = begin.removeprefix("tests/").partition("::")
        found = list(TESTS.glob(f"{path}*"))
        assert found, begin
        assert not test or f"def {test.partition('[')[0]}" in found[0].read_text(), begin


def test_the_longest_beginning_decides() -> None:
    assert tier_of("tests/integration/kafka/test_raw_copy.py::test_x") == "test"
    assert tier_of("tests/integration/kafka/test_kafka_security.py::test_x") == "conformance"
    assert tier_of("tests/integration/local/test_local_cli.py::test_x") == "nightly"

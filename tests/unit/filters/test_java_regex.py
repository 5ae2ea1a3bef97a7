"""Java patterns match in Python what they match in Java."""

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.filters import RegexSyntaxError, compile_java
from unit.cases import about

Golden = Callable[[str], list[dict[str, Any]]]

NOT_EXPRESSIBLE = {r"(?U)\w", "(?x)a b"}
"""Java compiles them, we refuse them: an error is better than another meaning."""


def test_patterns_match_what_java_matches(golden: Golden) -> None:
    (vectors,) = golden("regexes")
    for vector in vectors["patterns"]:
        pattern, expected = vector["pattern"], vector["matches"]
        try:
            compiled = compile_java(pattern)
        except RegexSyntaxError:
            assert expected is None or pattern in NOT_EXPRESSIBLE, pattern
            continue
        assert [name for name in vectors["names"] if compiled.fullmatch(name)] == expected, pattern
        assert pattern not in NOT_EXPRESSIBLE


def test_what_cannot_be_compiled_says_why() -> None:
    for pattern, problem in [
        ("*", "nothing to repeat"),
        ("(a", r"'\)' is missing"),
        ("a)", "closes no group"),
        ("[a", r"'\]' is missing"),
        ("a{1", "illegal repetition"),
        ("(?P<name>a)", "unknown group"),
        ("(?x)a", "flag 'x'"),
        (r"\p{IsGreek}", "property 'IsGreek'"),
        (r"\X", "not supported"),
        (r"\k", "names no group"),
        ("a\\", "single backslash"),
        ("(?<=a+)b", "look-behind"),
        ("(?iu-u)a", "not supported"),
        (r"\x{110000}", "not a character"),
        (r"\p{Lq}", "no category"),
    ]:
        with about(pattern, problem), pytest.raises(RegexSyntaxError, match=problem):
            compile_java(pattern)


def test_an_inline_flag_reaches_over_the_alternatives_that_follow() -> None:
    compiled = compile_java("a(?i)b|c")
    assert [name for name in ("ab", "aB", "AB", "c", "C") if compiled.fullmatch(name)] == [
        "ab",
        "aB",
        "c",
        "C",
    ]


@given(st.text(alphabet="ab|()[]{}?*+^$.\\-&pQEiLdw<>=!:,1", max_size=14))
def test_a_pattern_compiles_or_is_refused_and_nothing_else(pattern: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with contextlib.suppress(RegexSyntaxError):
            compile_java(pattern)


@given(st.text(max_size=20))
def test_a_quoted_text_matches_itself_only(text: str) -> None:
    quoted = "\\Q" + text.replace("\\E", "") + "\\E"
    compiled = compile_java(quoted)
    assert compiled.fullmatch(text.replace("\\E", ""))
    assert not compiled.fullmatch(text.replace("\\E", "") + "x")

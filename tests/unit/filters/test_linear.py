"""Patterns match what a backtracking engine would match, in time that grows with the name alone."""

import contextlib
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.errors import ConfigError
from twinlog.filters import PatternList, RegexSyntaxError, compile_java
from twinlog.filters.automaton import MOST_STEPS, Automaton, NoAutomatonError
from twinlog.filters.java_regex import compile_linear, translate
from twinlog.filters.linear import LONGEST_PATTERN, LinearPattern
from twinlog.filters.pattern_tree import parse
from unit.cases import about

Golden = Callable[[str], list[dict[str, Any]]]
NOT_EXPRESSIBLE = {r"(?U)\w", "(?x)a b"}
GROUP_ID_BYTES = 32_767

_atoms = st.sampled_from(["a", "b", "[ab]", "[^a]", ".", "ab", r"\.", "(?i:B)", "c?"])
_patterns = st.recursive(
    _atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,2}", "{1,}", "*?"])).map(
            lambda parts: f"(?:{parts[0]}){parts[1]}"
        ),
        inner.map(lambda part: f"^{part}$"),
    ),
    max_leaves=8,
)
_names = st.text("abcB.", max_size=7)


@given(_patterns, _names)
def test_an_automaton_matches_what_backtracking_matches(pattern: str, name: str) -> None:
    automaton = Automaton(parse(pattern)[0])
    assert automaton.matches(name) == (re.fullmatch(pattern, name, re.ASCII) is not None)


@given(st.text(r"ab.*+?()[]{}|\^$,1=!<>:ikQEd-&", max_size=12), st.lists(_names, max_size=4))
def test_whatever_compiles_matches_the_same_or_is_refused(pattern: str, names: list[str]) -> None:
    try:
        expected, linear = compile_java(pattern), compile_linear(pattern)
    except RegexSyntaxError:
        return
    for name in names:
        assert linear.matches(name) == (expected.fullmatch(name) is not None), (pattern, name)


def test_patterns_match_what_java_matches(golden: Golden) -> None:
    (vectors,) = golden("regexes")
    automata = 0
    for vector in vectors["patterns"]:
        pattern, expected = vector["pattern"], vector["matches"]
        if expected is None or pattern in NOT_EXPRESSIBLE:
            continue
        linear = compile_linear(pattern)
        assert [name for name in vectors["names"] if linear.matches(name)] == expected, pattern
        with contextlib.suppress(NoAutomatonError):
            automaton = Automaton(parse(translate(pattern))[0])
            names = [name for name in vectors["names"] if "\n" not in name]
            assert [name for name in names if automaton.matches(name)] == [n for n in expected if n in names]
            automata += 1
    assert automata > 20


def test_no_pattern_multiplies_the_ways_to_match_a_name() -> None:
    """A backtracking engine would take from minutes to the end of the world; no clock is asked."""
    for pattern in [
        "(a|a)*b",
        "(a*)*b",
        "(a+)+b",
        "(.*a){12}b",
        ".*a.*a.*a.*a.*b",
        "([a-z]+[.-])*[a-z]+!",
        "(a|b|ab)*c",
        "(a?){60}b",
    ]:
        for length in [249, GROUP_ID_BYTES]:
            with about(pattern, length):
                patterns = PatternList("topics", [pattern, "orders"])
                assert not patterns.matches("a" * length)
                assert patterns.deciding_pattern("a" * length) is None
                assert patterns.matches("orders")


@pytest.mark.parametrize("pattern", [".*a.*b", "a.*-.*-.*", ".*foo.*", "(?!.*x.*).*y"])
def test_ordinary_patterns_are_no_harm_with_the_longest_names(pattern: str) -> None:
    assert not PatternList("groups", [pattern]).matches("a" * GROUP_ID_BYTES)


@pytest.mark.parametrize(
    "pattern", [r"(.*)(.*)(.*)(.*)\1b", "(?!(a|a)*b).*", "(?=(a+)+b)a", "(a|a)*+b", "(?:(?>a*)|a)*b"]
)
def test_what_no_automaton_matches_is_refused_where_it_multiplies(pattern: str) -> None:
    with pytest.raises(ConfigError, match="could take very long"):
        PatternList("topics", [pattern])


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        (r"(\w+)-\1", "eu-eu"),
        ("(?!.*internal).*", "orders"),
        (r"(?<!x)orders", "orders"),
        ("[a-z]++", "orders"),
    ],
)
def test_what_is_no_automaton_and_multiplies_nothing_is_kept(pattern: str, name: str) -> None:
    assert PatternList("topics", [pattern]).matches(name)


def test_a_hostile_pattern_in_a_long_list_leaves_the_others_as_they_are() -> None:
    names = [f"orders-{number}" for number in range(500)]
    patterns = PatternList("topics", [*names, "(x|x)*y"])
    assert all(map(patterns.matches, names))
    assert patterns.matches("x" * 200 + "y")
    assert not patterns.matches("x" * 200)


@pytest.mark.parametrize("others", [["(?!tmp-).*-live"], [f"users-{number:04d}" for number in range(900)]])
def test_a_pattern_without_automaton_leaves_the_others_as_they_are_for_a_long_group(
    others: list[str],
) -> None:
    patterns = PatternList("groups", [*others, "[a-z]+-.*b.*", "orders-.*"])
    assert patterns.matches("orders-" + "x" * 1_000)
    assert not patterns.matches("payments" + "x" * 1_000)


@pytest.mark.parametrize(
    "pattern", ["a" * (LONGEST_PATTERN + 1), "(" * 5_000 + ")" * 5_000, "[" * 5_000 + "]" * 5_000]
)
def test_a_monstrous_pattern_is_refused_and_its_error_is_short(pattern: str) -> None:
    with pytest.raises(ConfigError) as refused:
        PatternList("topics", [pattern])
    assert len(str(refused.value)) < 2_000


def test_repetitions_of_repetitions_are_too_large_for_an_automaton() -> None:
    with pytest.raises(ConfigError, match="more than 5000 parts"):
        PatternList("topics", ["((a|b){60}){60}"])


def test_a_name_too_long_for_the_size_of_an_automaton_does_not_match() -> None:
    automaton = Automaton(parse("(?:a|a)*")[0])
    assert automaton.matches("a" * 100_000)
    assert not automaton.matches("a" * (MOST_STEPS // 2))


def calls_to_compile(count: int) -> int:
    """Python functions that are called for a list of so many names."""
    calls = 0

    def counted(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    names = [f"orders.{number:05d}" for number in range(count)]
    translated = translate("|".join(names))
    sys.setprofile(counted)
    try:
        LinearPattern(translated)
    finally:
        sys.setprofile(None)
    return calls


def test_a_list_is_compiled_in_work_that_grows_with_its_length() -> None:
    """Lists of ten thousand topics come with every change of a rule."""
    assert calls_to_compile(800) < 3 * calls_to_compile(400)


def test_costly_patterns_of_a_list_have_one_budget_together() -> None:
    """Each of them alone is harmless, and with thousands of topics all of them together are not."""
    few = PatternList("topics", [f"(a|b)*c{number}" for number in range(100)])
    assert few.matches("ababc7")
    assert not few.matches("ab" * 124)
    with pytest.raises(ConfigError, match="others could take very long"):
        PatternList("topics", [f"(a|b)*c{number}" for number in range(1_500)])


def test_long_lists_of_ordinary_patterns_are_accepted() -> None:
    names = PatternList("topics", [f"team-{number}[.]orders" for number in range(5_000)])
    wildcards = PatternList("topics", [f".*team-{number}-.*" for number in range(300)])
    assert names.matches("team-4999.orders")
    assert wildcards.deciding_pattern("eu-team-299-orders") == ".*team-299-.*"
    assert not wildcards.matches("eu-team-300-orders")

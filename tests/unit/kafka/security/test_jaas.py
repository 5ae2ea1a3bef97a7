"""Login configurations as Kafka's Java clients read them."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.kafka.security.jaas import JaasSyntaxError, parse_jaas
from unit.cases import about

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_module_and_options_are_read() -> None:
    entry = parse_jaas(f'{PLAIN} required username="alice" password="secret";')
    assert (entry.module, entry.module_name) == (PLAIN, "PlainLoginModule")
    assert entry.options == {"username": "alice", "password": "secret"}


def test_values_are_unquoted_as_in_java() -> None:
    for written, meant in [
        ('"pa ss"', "pa ss"),
        ("'single'", "single"),
        ("word-with_$", "word-with_$"),
        (r'"quo\"te"', 'quo"te'),
        (r'"back\\slash"', "back\\slash"),
        (r'"tab\tnew\nline"', "tab\tnew\nline"),
        (r'"\101\62\0"', "A2\0"),
        (r'"\4012"', " 12"),
        (r'"\q"', "q"),
        ('"semi;colon=equals"', "semi;colon=equals"),
        ('""', ""),
        ('"of a Secret made by echo\n"', "of a Secret made by echo"),
        ("'of a Secret made by echo\r\n'", "of a Secret made by echo"),
        ('"grüße // no comment /* here */"', "grüße // no comment /* here */"),
    ]:
        with about(written, meant):
            assert parse_jaas(f"{PLAIN} required password={written};").options == {"password": meant}


def test_comments_line_breaks_and_spaces_around_equals_are_allowed() -> None:
    text = f"""
        {PLAIN} REQUIRED   // the flag in any case
          username = "alice" /* and
          a password */ password="p"
        ;
    """
    assert parse_jaas(text).options == {"username": "alice", "password": "p"}


def test_only_the_first_entry_counts() -> None:
    entry = parse_jaas(f'{PLAIN} required username="one"; Other required username="two";')
    assert entry.options == {"username": "one"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty"),
        ("// only a comment", "empty"),
        (PLAIN, "control flag"),
        (f'{PLAIN} username="hush" password="hush";', "control flag"),
        (f'{PLAIN} required username="hush"', "semicolon"),
        (f"{PLAIN} required username;", "not of the form"),
        (f"{PLAIN} required username=;", "no value"),
        (f'{PLAIN} required username "hush";', "not of the form"),
        (f'{PLAIN} required username="hush', "not closed"),
        (f'{PLAIN} required username="hu\nsh";', "not closed"),
        (f'{PLAIN} required username="a" password=', "not of the form"),
    ],
)
def test_what_is_wrong_is_said_without_the_secret(text: str, problem: str) -> None:
    with pytest.raises(JaasSyntaxError) as raised:
        parse_jaas(text)
    assert problem in str(raised.value)
    assert "hush" not in str(raised.value)


def test_the_password_is_not_in_the_repr() -> None:
    assert "hush" not in repr(parse_jaas(f'{PLAIN} required password="hush";'))


@given(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"])))
def test_any_password_can_be_quoted(password: str) -> None:
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    assert parse_jaas(f'M required password="{quoted}";').options == {"password": password}


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(JaasSyntaxError):
        assert parse_jaas(text).module

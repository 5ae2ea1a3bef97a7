"""Properties files that we write read back to the same."""

from hypothesis import given
from hypothesis import strategies as st

from twinlog import properties
from twinlog.properties_text import plain_login, render_properties, scram_login

_KEYS = st.text(st.characters(codec="utf-8"), min_size=1)
_VALUES = st.text(st.characters(codec="utf-8"))


@given(st.dictionaries(_KEYS, _VALUES))
def test_properties_round_trip(written: dict[str, str]) -> None:
    content = render_properties(written).encode("iso-8859-1")
    read = properties.parse(content, file="written").entries
    assert {key: entry.value for key, entry in read.items()} == written


def test_plain_ascii_stays_readable() -> None:
    text = render_properties({"A->B.enabled": "true", "listeners": "CLIENT://127.0.0.1:9092"})
    assert text == "A->B.enabled=true\nlisteners=CLIENT://127.0.0.1:9092\n"


def test_logins_name_kafkas_modules() -> None:
    assert scram_login({}) == "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    assert plain_login({"username": "a"}) == (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="a";'
    )

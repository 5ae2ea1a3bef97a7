"""Flows as people write them."""

import pytest

from twinlog.model import Flow


@pytest.mark.parametrize("text", ["A->B", " A -> B "])
def test_a_flow_is_read(text: str) -> None:
    assert Flow.parse(text) == Flow("A", "B")


@pytest.mark.parametrize("text", ["", "A", "A=>B", "->B", "A->", "A-"])
def test_what_is_no_flow_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="is not a flow: expected SOURCE->TARGET") as refused:
        Flow.parse(text)
    assert ("in quotes" in str(refused.value)) == (text == "A-"), "what a shell leaves of A->B"

"""Static tokens: only their hashes are stored, and what is taken out of the file is refused at once."""

import hashlib
from pathlib import Path

import pytest

from twinlog.errors import ConfigError
from twinlog.service.access.roles import Role
from twinlog.service.access.tokens import TokenFile, parse_tokens


def line(name: str, role: str, token: str) -> str:
    return f"{name} {role} {hashlib.sha256(token.encode()).hexdigest()}\n"


def test_a_token_is_found_with_its_name_and_role(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("# who\n\n" + line("ci", "viewer", "t-1") + line("night-shift", "admin", "t-2"))
    tokens = TokenFile(str(file))
    found = tokens.find("t-2")
    assert found is not None
    assert (found.name, found.role) == ("file:night-shift", Role.ADMIN)
    assert tokens.find("t-3") is None
    assert tokens.find("") is None


def test_a_token_that_is_taken_out_is_refused_at_once(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(line("ci", "viewer", "t-1") + line("ops", "admin", "t-2"))
    tokens = TokenFile(str(file))
    assert tokens.find("t-2") is not None
    file.write_text(line("ci", "viewer", "t-1"))
    assert tokens.find("t-2") is None
    assert tokens.find("t-1") is not None


@pytest.mark.parametrize("content", ["ci viewer 12", "half a line that is longer", None])
def test_a_half_written_file_keeps_the_earlier_tokens(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "tokens"
    file.write_text(line("ci", "viewer", "t-1"))
    tokens = TokenFile(str(file))
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
    assert tokens.find("t-1") is not None
    file.write_text(line("ci", "viewer", "t-9"))
    assert tokens.find("t-1") is None
    assert tokens.find("t-9") is not None


@pytest.mark.parametrize(
    "wrong",
    ["ci viewer my-plain-token", f"ci root {'0' * 64}", "ci viewer", f"c{'i' * 70} viewer {'0' * 64}"],
)
def test_a_wrong_line_is_named_and_never_repeated(wrong: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_tokens(f"# first\n{wrong}\n".encode(), file="tokens")
    assert str(refused.value).startswith("tokens:2: expected NAME ROLE SHA256")
    assert "plain" not in str(refused.value)
    assert refused.value.reason == "TOKENS_UNUSABLE"

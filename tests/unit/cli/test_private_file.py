"""Files that commands write for their caller alone."""

import os
from pathlib import Path

import pytest

from twinlog.cli.common.private_file import refuse_to_replace, write_private
from twinlog.errors import ConfigError

BEGIN = b"begin"


def test_a_file_is_replaced_only_by_the_command_that_wrote_it(tmp_path: Path) -> None:
    properties, own, new = tmp_path / "mm2.properties", tmp_path / "own", tmp_path / "new"
    properties.write_text("clusters = A, B\n")
    with pytest.raises(ConfigError, match="is not replaced"):
        refuse_to_replace(properties, begins=BEGIN)
    write_private(own, BEGIN + b" of it")
    for file in (own, new):
        refuse_to_replace(file, begins=BEGIN)


def test_a_file_that_others_could_read_is_for_its_owner_alone_afterwards(tmp_path: Path) -> None:
    file = tmp_path / "own"
    file.write_bytes(BEGIN)
    file.chmod(0o644)
    write_private(file, BEGIN)
    assert file.stat().st_mode & 0o077 == 0
    assert [each.name for each in tmp_path.iterdir()] == ["own"]


def test_who_may_write_into_the_directory_cannot_lead_the_content_elsewhere(tmp_path: Path) -> None:
    """Such as in /tmp: a draft with a name that can be guessed could be a link that somebody else made."""
    file, elsewhere = tmp_path / "own", tmp_path / "elsewhere"
    elsewhere.write_bytes(b"of the operator")
    for name in (f".own.{os.getpid()}", ".own", "own.partial", ".own.draft"):
        (tmp_path / name).symlink_to(elsewhere)
    write_private(file, BEGIN)
    assert (file.read_bytes(), elsewhere.read_bytes()) == (BEGIN, b"of the operator")
    assert not file.is_symlink()


def test_a_file_that_came_meanwhile_stays_where_nothing_is_to_be_replaced(tmp_path: Path) -> None:
    file = tmp_path / "own"
    write_private(file, b"first", replace=False)
    with pytest.raises(ConfigError, match="is there already"):
        write_private(file, b"second", replace=False)
    assert file.read_bytes() == b"first"
    assert [each.name for each in tmp_path.iterdir()] == ["own"]

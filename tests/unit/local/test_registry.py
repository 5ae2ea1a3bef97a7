"""Who owns the name of a cluster of `twinlog local`."""

import sys
from pathlib import Path

import pytest

from twinlog.errors import ConflictError
from twinlog.local import registry


def test_a_name_is_owned_once_in_a_clone_and_another_clone_sees_and_ends_its_own_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with registry.claim("A") as entry:
        with pytest.raises(ConflictError), registry.claim("A"):
            pass
        monkeypatch.setattr(sys, "prefix", "/another/clone/.venv")
        assert not registry.is_owned("A")
        with registry.claim("A") as other:
            registry.request_end("A")
            assert other.is_requested(registry.OwnerRequest.END)
        monkeypatch.undo()
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        assert registry.is_owned("A")
        assert not entry.is_requested(registry.OwnerRequest.END)

"""Runs tell each other where they are, where that is possible."""

from pathlib import Path

import pytest

from twinlog.service.runs import LivingRun, announced, living_runs

_RUN = LivingRun(pid=1, config="/etc/mm2.properties", listens={}, endpoints={})


def test_a_user_without_a_home_runs_unannounced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers run under ids that the system does not know."""

    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nobody)

    assert living_runs() == []
    with pytest.raises(OSError, match="XDG_STATE_HOME"), announced(_RUN):
        pass

"""Runs tell each other where they are, where that is possible."""

from collections import UserDict
from collections.abc import KeysView
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Barrier, BrokenBarrierError

import pytest

from twinlog.cli.common.location import service_endpoints
from twinlog.errors import ConfigError
from twinlog.supervisor.main import begin_run
from twinlog.supervisor.plan import RunPlan, RunRequest
from twinlog.supervisor.runs import LivingRun, announced, living_runs

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


class _MeetingPlace(UserDict[str, str]):
    """An environment in whose reading two runs wait for each other, as long as both can come that far."""

    def __init__(self) -> None:
        super().__init__()
        self._barrier = Barrier(2, timeout=0.5)

    def keys(self) -> KeysView[str]:
        with suppress(BrokenBarrierError):
            self._barrier.wait()
        return super().keys()


def test_runs_that_begin_together_take_addresses_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    environment = _MeetingPlace()

    def begin(name: str, stack: ExitStack) -> RunPlan:
        file = tmp_path / f"{name}.properties"
        file.write_text("clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\n")
        plan, unannounced = begin_run(RunRequest(config=file), environment=environment, stack=stack)
        assert unannounced is None
        return plan

    with ExitStack() as one, ExitStack() as other, ThreadPoolExecutor(2) as pool:
        plans = list(pool.map(begin, ("one", "other"), (one, other)))
        assert len(living_runs()) == 2
        taken = [str(address.listen) for plan in plans for address in plan.addresses.values()]
        assert len(taken) == len(set(taken))


def test_a_file_that_copies_nothing_says_which_line_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    file = tmp_path / "mm2.properties"
    text = "clusters = left, right\nleft.bootstrap.servers = a:1\nright.bootstrap.servers = b:1\n"
    for line, told in (("", ["left->right.enabled = true"]), ("left->right.enabled = true\n", [])):
        file.write_text(text + line)
        with ExitStack() as stack:
            plan, _ = begin_run(RunRequest(config=file), environment={}, stack=stack)
            assert [each.text.rpartition("write ")[2] for each in plan.notices] == told


def test_a_file_that_does_not_run_finds_no_services_of_a_file_with_other_clusters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`twinlog pause --config OTHER` paused a flow of the file that runs: both have the default addresses."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    runs, copy, other = (tmp_path / f"{name}.properties" for name in ("runs", "copy", "other"))
    text = "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n"
    for file in (runs, copy):
        file.write_text(text)
    other.write_text(text.replace("b:1", "c:1"))
    at = service_endpoints(other, None)
    run = LivingRun(pid=1, config=str(runs.resolve()), listens=at, endpoints=at)
    with announced(run):
        assert service_endpoints(runs, None) == service_endpoints(copy, None) == at
        with pytest.raises(ConfigError, match=r"other\.properties does not run here"):
            service_endpoints(other, None)
        with pytest.raises(ConfigError):
            service_endpoints(other, ["source=far:1"])
        assert service_endpoints(other, [f"{service}=far:1" for service in at])
    with announced(LivingRun(pid=1, config=str(other.resolve()), listens=at, endpoints=at)), announced(run):
        assert service_endpoints(other, None) == at

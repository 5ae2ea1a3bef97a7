"""`pytest -n 3` runs tests in three processes.

The processes are forked after collection: modules are imported and tests collected once, and the result of a
test that passed is a few numbers. For tests of a millisecond, pytest-xdist takes twice the CPU time.
"""

import ctypes
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from time import monotonic
from typing import Any, NoReturn

import pytest

from shared_work import SharedWork

_END_SECONDS = 60.0
_SEND_EVERY_SECONDS = 0.2
_PR_SET_PDEATHSIG = 1

Phase = tuple[str, float, float, float, list[tuple[str, str]]]
"""A phase of a test that passed: its name, duration, begin, end and output."""
Result = tuple[int, list[Phase | dict[str, Any]]]
"""A test's place in the session, and its phases; whole reports of those that did not pass."""


@dataclass(slots=True, kw_only=True)
class _Child:
    """One of the processes, as their parent sees it."""

    pid: int
    slot: int
    messages: Connection
    unfinished: list[int] = field(default_factory=list)
    """Tests of the groups that it took, without those whose results are known."""
    is_done: bool = False


def add_option(parser: pytest.Parser) -> None:
    told = "run tests in N processes, the tests of a file in one of them; auto: a process for each CPU"
    # `addoption` keeps lower-case letters for pytest and installed plugins.
    parser.getgroup("side by side")._addoption("-n", dest="processes", default="0", metavar="N", help=told)


def configure(config: pytest.Config) -> None:
    asked = config.getoption("processes")
    processes = os.cpu_count() or 1 if asked == "auto" else int(asked)
    if processes > 1:
        config.pluginmanager.register(SideBySide(config, processes), "side by side")


class SideBySide:
    """In place of pytest's own loop over the tests."""

    def __init__(self, config: pytest.Config, processes: int) -> None:
        self._config = config
        self._processes = processes
        self._children: dict[Connection, _Child] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed or self._config.option.collectonly or self._config.option.usepdb:
            return None
        terminal = self._config.pluginmanager.getplugin("terminalreporter")
        if terminal is not None:
            terminal.showfspath = False
        self._config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined] # made for all of them
        self._session = session
        self.work = SharedWork([item.nodeid for item in session.items], self._processes)
        try:
            for slot in range(min(self._processes, len(self.work.groups))):
                self._fork(slot, [])
            while self._children:
                for messages in wait(list(self._children)):
                    assert isinstance(messages, Connection)
                    self._receive(self._children[messages])
        finally:
            self._end_children()
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        return True

    def _fork(self, slot: int, tests: Sequence[int]) -> None:
        here, there = Pipe(duplex=False)
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            for connection in (here, *self._children):
                connection.close()
            _Worker(self._session, self.work, slot, there).run(tests)
        there.close()
        self._children[here] = _Child(pid=pid, slot=slot, messages=here, unfinished=list(tests))

    def _receive(self, child: _Child) -> None:
        try:
            kind, content = child.messages.recv()
        except (EOFError, ConnectionResetError):
            self._ended(child)
            return
        if kind == "group":
            child.unfinished += self.work.groups[content]
        elif kind == "results":
            for index, phases in content:
                child.unfinished.remove(index)
                self._log(index, phases)
        elif kind == "warning":
            self._config.hook.pytest_warning_recorded.call_historic(kwargs=content)
        elif kind == "done":
            child.is_done = True
        else:
            raise RuntimeError(f"a process that runs tests failed:\n{content}")

    def _ended(self, child: _Child) -> None:
        """If it died in a test, this test failed, and another process continues."""
        del self._children[child.messages]
        child.messages.close()
        _, status = os.waitpid(child.pid, 0)
        if child.is_done:
            return
        index = self.work.running(child.slot)
        code = os.waitstatus_to_exitcode(status)
        if index is None:
            raise RuntimeError(f"a process that runs tests ended between two of them: exit code {code}")
        item = self._session.items[index]
        report = pytest.TestReport(
            nodeid=item.nodeid,
            location=item.location,
            keywords={},
            outcome="failed",
            longrepr=f"its process ended: exit code {code}",
            when="call",
        )
        child.unfinished.remove(index)
        self._log(index, [_data_of(report, self._config)])
        if not self.work.is_stopped:
            self._fork(child.slot, child.unfinished)

    def _log(self, index: int, phases: Sequence[Phase | dict[str, Any]]) -> None:
        hook, item = self._config.hook, self._session.items[index]
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for phase in phases:
            if isinstance(phase, dict):
                report = hook.pytest_report_from_serializable(config=self._config, data=phase)
            else:
                report = _report_of_passed(item, *phase)
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        if self._session.shouldfail or self._session.shouldstop:
            self.work.stop()

    def _end_children(self) -> None:
        """After an error: each lets go of what its tests have started."""
        for child in self._children.values():
            os.kill(child.pid, signal.SIGINT)
        give_up_at = monotonic() + _END_SECONDS
        for child in self._children.values():
            while child.messages.poll(max(give_up_at - monotonic(), 0.0)):
                try:
                    child.messages.recv()
                except (EOFError, ConnectionResetError):
                    break
            os.kill(child.pid, signal.SIGKILL)
            os.waitpid(child.pid, 0)


class _Worker:
    """One of the processes, in itself."""

    def __init__(self, session: pytest.Session, work: SharedWork, slot: int, parent: Connection) -> None:
        self._session = session
        self._work = work
        self._slot = slot
        self._parent = parent
        self._phases: list[Phase | dict[str, Any]] = []
        self._results: list[Result] = []
        self._sent_at = monotonic()

    def run(self, tests: Sequence[int]) -> NoReturn:
        """These tests, then groups as long as there are any."""
        try:
            self._leave_the_parent()
            try:
                self._run_tests(tests)
            finally:
                # Whatever comes now, what the tests have started is let go of.
                signal.signal(signal.SIGINT, lambda *_: None)
                self._session._setupstate.teardown_exact(None)
            self._send_results()
            self._parent.send(("done", None))
        except KeyboardInterrupt:
            pass  # the parent's, too
        except BaseException:
            self._parent.send(("failed", traceback.format_exc()))
        finally:
            os._exit(0)

    def _leave_the_parent(self) -> None:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0)
        config = self._session.config
        plugins = config.pluginmanager
        plugins.unregister(name="terminalreporter")
        plugins.register(self)
        # What is captured goes into files, of which each process needs its own.
        capture = plugins.getplugin("capturemanager")
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture()
        factory = config._tmp_path_factory  # type: ignore[attr-defined]
        factory._basetemp = Path(factory.mktemp(f"process-{self._slot}-"))

    def _run_tests(self, tests: Sequence[int]) -> None:
        self._run_group(tests)
        while (group := self._work.take()) is not None:
            self._parent.send(("group", group))
            self._run_group(self._work.groups[group])

    def _run_group(self, tests: Sequence[int]) -> None:
        items = [self._session.items[index] for index in tests]
        # Another group may follow: the fixtures of the session stay.
        following: list[pytest.Item | pytest.Session] = [*items[1:], self._session]
        for index, item, next_ in zip(tests, items, following, strict=False):
            if self._work.is_stopped:
                return
            self._run_test(index, item, next_)

    def _run_test(self, index: int, item: pytest.Item, following: pytest.Item | pytest.Session) -> None:
        with self._work.marked_as_running(self._slot, index):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        self._results.append((index, self._phases))
        self._phases = []
        if monotonic() - self._sent_at > _SEND_EVERY_SECONDS:
            self._send_results()

    def _send_results(self) -> None:
        self._parent.send(("results", self._results))
        self._results = []
        self._sent_at = monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome != "passed" or report.user_properties or hasattr(report, "wasxfail"):
            self._phases.append(_data_of(report, self._session.config))
        else:
            assert report.when is not None
            self._phases.append((report.when, report.duration, report.start, report.stop, report.sections))

    def pytest_warning_recorded(
        self,
        warning_message: warnings.WarningMessage,
        when: str,
        nodeid: str,
        location: tuple[str, int, str] | None,
    ) -> None:
        told = warnings.WarningMessage(
            str(warning_message.message),
            warning_message.category,
            warning_message.filename,
            warning_message.lineno,
        )
        content = {"warning_message": told, "when": when, "nodeid": nodeid, "location": location}
        self._parent.send(("warning", content))


def _data_of(report: pytest.TestReport, config: pytest.Config) -> dict[str, Any]:
    data: dict[str, Any] = config.hook.pytest_report_to_serializable(config=config, report=report)
    return data


def _report_of_passed(
    item: pytest.Item, when: str, duration: float, start: float, stop: float, sections: list[tuple[str, str]]
) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords={},
        outcome="passed",
        longrepr=None,
        when=when,  # type: ignore[arg-type]
        sections=sections,
        duration=duration,
        start=start,
        stop=stop,
    )

"""Problems and notices about a configuration: problems prevent the start, notices do not."""

from dataclasses import dataclass
from enum import StrEnum

from twinlog.errors import ConfigError
from twinlog.properties import Property


class NoticeLevel(StrEnum):
    INFO = "info"
    """Accepted without effect, or a difference worth knowing."""
    WARNING = "warning"
    """Probably not intended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    level: NoticeLevel
    key: str
    line: int
    """0 when it concerns no line of the file."""
    text: str
    is_mistake: bool = False
    """Nobody can have meant it, although MirrorMaker 2 would start with it: the flow would copy other topics
    than the file says, or none."""

    def __str__(self) -> str:
        place = f"line {self.line}: " if self.line else ""
        return f"{place}{self.key}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    key: str
    line: int
    text: str


class Findings:
    """Collects problems and notices while a configuration is read, each only once."""

    def __init__(self, *, file: str) -> None:
        self.file = file
        self._problems: dict[Problem, None] = {}
        self._notices: dict[Notice, None] = {}

    def problem(self, key: str, text: str, *, line: int = 0) -> None:
        self._problems[Problem(key=key, line=line, text=text)] = None

    def wrong_value(self, prop: Property, expected: str, *, secret: bool) -> None:
        """`prop` has not the form that its key requires. Values of secrets, and values from providers, are
        not shown."""
        if prop.written is not None:
            found = f"{prop.written} (resolved)"
        elif secret:
            found = "a value that is not shown"
        else:
            found = repr(prop.value)
        hint = ""
        if " #" in prop.value and not secret:
            hint = "; a comment has to be on a line of its own"
        self.problem(prop.key, f"expected {expected}, found {found}{hint}", line=prop.line)

    def info(self, key: str, text: str, *, line: int = 0) -> None:
        self._notices[Notice(level=NoticeLevel.INFO, key=key, line=line, text=text)] = None

    def warning(self, key: str, text: str, *, line: int = 0, is_mistake: bool = False) -> None:
        notice = Notice(level=NoticeLevel.WARNING, key=key, line=line, text=text, is_mistake=is_mistake)
        self._notices[notice] = None

    @property
    def notices(self) -> tuple[Notice, ...]:
        return tuple(sorted(self._notices, key=lambda notice: notice.line))

    def raise_problems(self) -> None:
        """Raises ConfigError with all problems, one per line, in file order; returns when there are none."""
        problems = sorted(self._problems, key=lambda problem: problem.line)
        if not problems:
            return
        lines = [f"{self._place(problem)}: {problem.key}: {problem.text}" for problem in problems]
        first = problems[0]
        metadata = {
            "file": self.file,
            "line": str(first.line),
            "key": first.key,
            "problems": str(len(problems)),
        }
        raise ConfigError("\n".join(lines), metadata=metadata)

    def _place(self, problem: Problem) -> str:
        return f"{self.file}:{problem.line}" if problem.line else self.file

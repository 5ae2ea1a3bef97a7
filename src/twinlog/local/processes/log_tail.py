"""Follows a log file that another process writes."""

from pathlib import Path


class LogTail:
    """Returns whole new lines, beginning at the file's present end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._position = path.stat().st_size if path.exists() else 0

    def new_lines(self) -> list[str]:
        """Lines completed since the last call; none while the file does not exist."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._position)
                read = file.read()
        except FileNotFoundError:
            return []
        whole = read[: read.rfind(b"\n") + 1]
        self._position += len(whole)
        return whole.decode(errors="replace").splitlines()


def last_lines(path: Path, count: int) -> str:
    """The end of a log for an error message; empty when there is no file."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    return "\n".join(lines[-count:])

"""The files of a verification: checked before it, which may take hours, and written after it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinlog.cli.common.call import Call
from twinlog.cli.common.failures import exiting_with
from twinlog.cli.verify.tables import print_report
from twinlog.errors import ConfigError


def check_writable(file: Path | None) -> None:
    """Check before a verification that may take hours. Raises ConfigError."""
    if file is None:
        return
    if not file.resolve().parent.is_dir():
        raise ConfigError(f"{file}: there is no such directory", metadata={"file": str(file)})
    was_there = file.exists()
    try:
        with file.open("a", encoding="utf-8"):
            pass
    except OSError as error:
        raise _not_written(file, error) from error
    if not was_there:
        file.unlink(missing_ok=True)


def write_reports(told: dict[str, Any], report_file: Path | None, html_file: Path | None) -> None:
    """Write after the report was printed, so that a full disk does not lose the result of hours; also if it
    could not be printed. Raises ConfigError."""
    if report_file is not None:
        _write(report_file, json.dumps(told, indent=2, ensure_ascii=False) + "\n")
    if html_file is not None:
        from twinlog.verify.page import page

        _write(html_file, page(told))


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _not_written(file, error) from error


def _not_written(file: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{file}: cannot be written: {error.strerror or error}", metadata={"file": str(file)})


# Prints a report, writes it to the named files, and exits with its verdict.


if TYPE_CHECKING:
    from twinlog.verify.report import FlowReport


def tell(report: "FlowReport", call: Call, report_file: Path | None, html_file: Path | None) -> None:
    """The files are written, and the exit code is the verdict's, also if the reader of the output closes it
    before its end. Exits with 2 for a file that cannot be written."""
    from twinlog.verify.report import EXIT_CODES, document

    told = document(report)
    with exiting_with(EXIT_CODES[report.verdict]):
        try:
            call.tell(told, lambda: print_report(told))
        finally:
            write_reports(told, report_file, html_file)

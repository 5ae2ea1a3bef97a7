"""Prints a report, writes it to the named files, and exits with its verdict."""

from pathlib import Path
from typing import TYPE_CHECKING

from twinlog.cli.common.failures import exiting_with
from twinlog.cli.common.output import Output, print_json
from twinlog.cli.verify.files import write_reports
from twinlog.cli.verify.tables import print_report

if TYPE_CHECKING:
    from twinlog.verify.report import FlowReport


def tell(report: "FlowReport", output: Output, report_file: Path | None, html_file: Path | None) -> None:
    """The files are written, and the exit code is the verdict's, also if the reader of the output closes it
    before its end. Exits with 2 for a file that cannot be written."""
    from twinlog.verify.report import EXIT_CODES, Verdict, document

    told = document(report)
    with exiting_with(EXIT_CODES[report.verdict], failed=EXIT_CODES[Verdict.INCOMPLETE]):
        try:
            if output is Output.JSON:
                print_json(told)
            else:
                print_report(told)
        finally:
            write_reports(told, report_file, html_file)

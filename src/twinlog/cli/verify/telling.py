"""Prints a report, then writes it to the named files."""

from pathlib import Path
from typing import TYPE_CHECKING

from twinlog.cli.common.output import Output, print_json
from twinlog.cli.verify.files import write_reports
from twinlog.cli.verify.tables import print_report

if TYPE_CHECKING:
    from twinlog.verify.report import FlowReport


def tell(report: "FlowReport", output: Output, report_file: Path | None, html_file: Path | None) -> None:
    """Raises ConfigError for a file that cannot be written."""
    from twinlog.verify.report import document

    told = document(report)
    if output is Output.JSON:
        print_json(told)
    else:
        print_report(told)
    write_reports(told, report_file, html_file)

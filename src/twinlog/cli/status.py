"""`twinlog status`: all services, flows and clusters at a glance."""

from typing import Annotated

import typer

from twinlog.cli.failures import EXIT_FAILED, reported_failures, run_async
from twinlog.cli.location import ConfigOption, EndpointOption, service_endpoints
from twinlog.cli.output import Output, OutputOption, print_json, print_table

_HELP = """Show every service, flow and cluster as they are now.

The services are looked for where --config says (or the variable TWINLOG_CONFIG), else on the default ports \
of this machine; --endpoint names one directly, as the ready line of `twinlog run` does.

Exit code 0 when all services serve, 1 when one does not (it is a row with its reason), 2 for wrong usage.
"""


def status_command(
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    output: OutputOption = Output.TABLE,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds that each service may take to answer.")
    ] = 5.0,
) -> None:
    with reported_failures():
        endpoints = service_endpoints(config, endpoint)
    from twinlog.cli import status_view as view
    from twinlog.cli.status_query import query_status

    status = run_async(query_status(endpoints, timeout_seconds=timeout))
    with reported_failures():
        if output is Output.JSON:
            print_json(view.as_json(status))
        else:
            print_table("", view.SERVICE_COLUMNS, map(view.service_cells, status.services))
            if status.flows:
                print_table(
                    "",
                    view.FLOW_COLUMNS,
                    [view.flow_cells(status.flows[name]) for name in sorted(status.flows)],
                )
            if status.clusters:
                cells = [view.cluster_cells(status.clusters[alias]) for alias in sorted(status.clusters)]
                print_table("", view.CLUSTER_COLUMNS, cells)
            if notes := view.note_cells(status):
                print_table("", view.NOTE_COLUMNS, notes)
    if not status.all_serving:
        raise typer.Exit(EXIT_FAILED)


status_command.__doc__ = _HELP

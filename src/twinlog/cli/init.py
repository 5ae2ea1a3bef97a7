"""`twinlog init`: a first properties file, by five questions."""

import sys
from pathlib import Path

import typer

from twinlog.cli.common.failures import RUN
from twinlog.cli.common.options import argument
from twinlog.cli.common.private_file import write_private
from twinlog.cli.start import FirstFlow, NoAnswerError, errors_in, found_out, wanted_from
from twinlog.errors import ConfigError
from twinlog.printable import printable


def init_command(
    file: Path = argument("FILE", "The file to write.", Path("twinlog.properties")),
) -> None:
    """Write a first properties file, by five questions.

    It asks for both clusters, their names, the topics and the names of the copies; Enter takes the answer in
    brackets. If both clusters answer, the file has as many replicas as their brokers allow; if one does not,
    the file is written all the same, with three. A file that exists is never replaced, and nothing is written
    for two addresses of one cluster.
    """
    if file.exists():
        told = (
            f"{file} exists and is not replaced: `twinlog run {file}` runs it as it is; or name another file"
        )
        raise ConfigError(told, key="FILE")
    try:
        wanted = _asked(file)
    except typer.Abort:
        if sys.stdin.isatty():
            raise  # Ctrl-C
        told = "stdin ended before the fifth answer; `twinlog start A:9092 B:9092 --dry-run` asks nothing"
        raise ConfigError(told, key="FILE") from None
    try:
        text, facts = RUN.get()(found_out(wanted))
    except NoAnswerError as error:
        text = wanted.text()
        typer.echo(printable(f"not checked on the clusters: {error}"), err=True)
    else:
        for line in errors_in(facts):
            typer.echo(f"before the first run: {line}", err=True)
    write_private(file, text.encode("ascii"), replace=False)
    typer.echo(f"{file} is written")
    typer.echo(f"next: twinlog preflight {file}, then twinlog run {file}")


def _asked(file: Path) -> FirstFlow:
    source = typer.prompt("1/5 Brokers to copy from (host:port,…)")
    target = typer.prompt("2/5 Brokers to copy to (host:port,…)")
    names = typer.prompt("3/5 Names of both clusters", default="source,target")
    topics = typer.prompt("4/5 Topics to copy, names and regular expressions", default=".*")
    alias = names.partition(",")[0].strip()
    keeps = typer.confirm(f"5/5 Copies keep their names (orders, not {alias}.orders)", default=False)
    return wanted_from(source, target, topics=topics, names=names, file=file, keep_names=keeps)

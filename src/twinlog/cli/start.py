"""`twinlog start SOURCE TARGET`: a first flow, for which it writes the file that it runs; `twinlog init`."""

import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import typer

from twinlog.cli.common.failures import EXIT_WRONG_USE, RUN
from twinlog.cli.common.location import note_file
from twinlog.cli.common.names import counted
from twinlog.cli.common.options import argument, flag, option
from twinlog.cli.common.private_file import unwritable, write_private
from twinlog.errors import ConfigError
from twinlog.printable import printable
from twinlog.properties_text import render_properties

if TYPE_CHECKING:
    from twinlog.config import Configuration
    from twinlog.preflight.facts import ClusterFacts, Facts
    from twinlog.supervisor.plan import RunRequest


# Writes the properties of a first flow between two open clusters, from the facts about them. Pure.

_MOST_REPLICAS: Final = 3
_KEEP_NAMES: Final = {"replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCluster:
    """A cluster of the flow."""

    alias: str
    bootstrap_servers: str
    broker_count: int = _MOST_REPLICAS
    cluster_id: str = ""
    """Empty while it is not known."""


def first_file(
    source: StartCluster, target: StartCluster, *, topics: str = ".*", keep_names: bool = False
) -> str:
    """The file, in the format of MirrorMaker 2, with a comment for each choice. `topics` are names and
    regular expressions, separated by commas. `keep_names`: the copy of orders is named orders."""
    flow = f"{source.alias}->{target.alias}"
    blocks = [
        _block(
            "The names of the clusters."
            + ("" if keep_names else f" The copy of a topic is named {source.alias}.TOPIC."),
            {"clusters": f"{source.alias}, {target.alias}"},
        ),
        *(
            _block(
                f"Cluster id {end.cluster_id}." if end.cluster_id else "",
                {f"{end.alias}.bootstrap.servers": end.bootstrap_servers},
            )
            for end in (source, target)
        ),
        _block("One direction; the other one is off by default.", {f"{flow}.enabled": "true"}),
        _block(
            "Which topics are copied: names and regular expressions. Internal topics never are.",
            {f"{flow}.topics": topics},
        ),
        *([_block("Copies have the names of their topics.", _KEEP_NAMES)] if keep_names else []),
        _replicas(source, target),
        _replicas(target, source),
        _block(
            "Heartbeats of a flow are written on both clusters.",
            {"heartbeats.topic.replication.factor": str(min(map(_most_replicas, (source, target))))},
        ),
    ]
    return "\n".join(blocks)


def _replicas(on: StartCluster, other: StartCluster) -> str:
    """Of all topics that flows of either direction create there, and those of MirrorMaker 2's workers, which
    take 3 where the file does not say it."""
    here, back = f"{other.alias}->{on.alias}", f"{on.alias}->{other.alias}"
    topics = (
        *(here, f"{here}.checkpoints.topic", f"{back}.offset-syncs.topic"),
        *(f"{on.alias}.{kind}.storage" for kind in ("offset", "config", "status")),
    )
    factor = str(_most_replicas(on))
    return _block(
        f"Replicas of what is created on {on.alias}: {_MOST_REPLICAS}, or one on each broker. The last two"
        " are MirrorMaker 2's alone.",
        {f"{topic}.replication.factor": factor for topic in topics},
    )


def _most_replicas(on: StartCluster) -> int:
    return min(on.broker_count, _MOST_REPLICAS)


def _block(why: str, properties: Mapping[str, str]) -> str:
    # An alias may have characters that the file format does not allow.
    comment = why.encode("ascii", "replace").decode()
    return (f"# {comment}\n" if why else "") + render_properties(properties)


# `twinlog run`: all four services of a properties file as children of one process.


def run_command(
    file: Path = argument("FILE", "A MirrorMaker 2 properties file.", callback=note_file),
    flows: str = option("--flows A->B,…", "Only these flows; default: all flows of the file.", ""),
    clusters: str = option("--clusters B,…", "Only flows whose target is one of these aliases.", ""),
    service: list[str] | None = option("--service NAME", "Run only this service. May be repeated.", None),
    set_: list[str] | None = option(
        "--set KEY=VALUE", "A property that wins over the file. May be repeated.", None
    ),
    strict: bool = flag("--strict", "An unknown key is an error."),
    log_format: str | None = option(
        "--log-format auto|json|console", "auto = readable on a terminal, else JSON.", None
    ),
) -> None:
    """Run the services of a properties file in the foreground, as MirrorMaker 2's dedicated mode does.

    Prints one line on stdout that begins with `ready:` once all services serve; logs go to stderr. A service
    that dies is restarted; the others continue. SIGTERM or Ctrl-C stops all services cleanly, a second one
    kills them.

    With port 0 in `twinlog.<service>.listen` the service takes a free port; the ready line shows it.

    Exit codes: 0 stopped cleanly; 1 a service had to be killed or failed while stopping; 2 wrong
    configuration (the message names file, line and key): nothing was started, or a service refused it.
    """
    from twinlog.supervisor.plan import RunRequest

    run_file(
        RunRequest(
            config=file,
            flows=_names(flows),
            clusters=_names(clusters),
            services=tuple(service or ()),
            overrides=tuple(set_ or ()),
            strict=strict,
            log_format=log_format,
        )
    )


def run_file(request: "RunRequest") -> NoReturn:
    """Run the services until a signal, and exit."""
    from twinlog.service.runtime import exit_on_signals

    # Until the services are started, there is nothing that would have to be stopped in order.
    with exit_on_signals():
        from twinlog.supervisor.main import run

        exit_code = run(request)
    if exit_code == EXIT_WRONG_USE:
        typer.echo(f"next: twinlog preflight {shlex.quote(str(request.config))}", err=True)
    sys.exit(exit_code)


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


_SHOWN_TOPICS = 10
_TIMEOUT_SECONDS = 10.0
_MOST_PORT = 65_535


class NoAnswerError(ConfigError):
    """A cluster does not answer at the address that was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstFlow:
    """The two ends as they were asked for, and the file."""

    source: StartCluster
    target: StartCluster
    topics: str
    file: Path
    keep_names: bool = False

    @property
    def ends(self) -> tuple[StartCluster, StartCluster]:
        return self.source, self.target

    def text(self, ends: Iterable[StartCluster] | None = None) -> str:
        """The file; `ends`: with what is known of the clusters."""
        return first_file(*(ends or self.ends), topics=self.topics, keep_names=self.keep_names)


def start_command(
    source: str = argument("SOURCE", "host:port of a broker to copy from."),
    target: str = argument("TARGET", "host:port of a broker to copy to."),
    topics: str = option("--topics NAME,…", "Topics to copy: names and regular expressions.", ".*"),
    names: str = option(
        "--names A,B", "The names of both clusters; the first one prefixes copies.", "source,target"
    ),
    file: Path = option("--file FILE", "The file to write and run.", Path("twinlog.properties")),
    keep_names: bool = flag("--keep-names", "Copies have the names of their topics."),
    dry_run: bool = flag("--dry-run", "Print the file, and to stderr what would be copied."),
) -> None:
    """Copy topics from one cluster to another, without a file.

    Asks both clusters what it needs to know, writes a properties file with a comment for each choice, prints
    what will be copied, and runs the file in the foreground as `twinlog run FILE` does. Next time run the
    file. Nothing is started if a cluster cannot be reached, if both addresses are of one cluster, or if
    `twinlog preflight` would find an error.

    For clusters with TLS or a login, write a file (docs/logins.md).

    Exit codes: those of `twinlog run`; 2 nothing was started.
    """
    from twinlog.service.runtime import exit_on_signals
    from twinlog.supervisor.plan import RunRequest

    with exit_on_signals():
        wanted = wanted_from(source, target, topics=topics, names=names, file=file, keep_names=keep_names)
        text, facts = RUN.get()(found_out(wanted))
        refuse_errors(facts)
        existed = is_there(file, text)
        if dry_run:
            typer.echo(text)
        for line in told(wanted, facts):
            typer.echo(printable(line), err=dry_run)  # `--dry-run > FILE` writes a file that runs
        if dry_run:
            return
        if not existed:
            write_private(file, text.encode("ascii"), replace=False)
        typer.echo(f"{file} {'is there' if existed else 'is written'}: `twinlog run {file}` does the same")
        sys.stdout.flush()
    run_file(RunRequest(config=file))


def wanted_from(
    source: str, target: str, *, topics: str, names: str, file: Path, keep_names: bool = False
) -> FirstFlow:
    """Raises ConfigError for what cannot be two clusters."""
    one, other = _two_names(names)
    if not topics.strip():
        raise ConfigError("--topics is empty: leave it out to copy all topics", key="--topics")
    places: dict[str, str] = {}
    for place, servers in (("SOURCE", source), ("TARGET", target)):
        for address in map(str.strip, servers.split(",")):
            _refuse_no_address(place, address)
            if places.setdefault(address, place) != place:
                raise ConfigError(
                    f"SOURCE and TARGET both name {address}: a cluster is not copied into itself",
                    key="TARGET",
                )
    return FirstFlow(
        source=StartCluster(alias=one, bootstrap_servers=source),
        target=StartCluster(alias=other, bootstrap_servers=target),
        topics=topics,
        file=file,
        keep_names=keep_names,
    )


def _two_names(names: str) -> list[str]:
    found = [name.strip() for name in names.split(",")]
    if len(found) != 2 or not all(found) or found[0] == found[1]:
        raise ConfigError(f"names {names!r}: expected two different names, as source,target", key="--names")
    return found


def _refuse_no_address(place: str, text: str) -> None:
    from twinlog.config import Address

    try:
        address = Address.parse(text)
    except ValueError:
        raise ConfigError(
            f"{place} {text!r}: expected host:port of a broker, as kafka-a:9092", key=place
        ) from None
    if not 0 < address.port <= _MOST_PORT or any(each in address.host for each in " /"):
        raise ConfigError(
            f"{place} {text!r}: expected host:port of a broker, with a port from 1 to {_MOST_PORT}", key=place
        )


async def found_out(wanted: FirstFlow) -> tuple[str, "Facts"]:
    """The file, and what its flow finds on the clusters.

    Raises NoAnswerError, and ConfigError for what is no file for two clusters.
    """
    facts = await _asked(wanted, wanted.text())
    found = ((end, facts.clusters[end.alias]) for end in wanted.ends)
    text = wanted.text(
        [replace(end, broker_count=each.broker_count, cluster_id=each.cluster_id) for end, each in found]
    )
    return text, await _asked(wanted, text)


async def _asked(wanted: FirstFlow, text: str) -> "Facts":
    from twinlog.preflight.gather import gather_facts

    facts = await gather_facts(read(text, wanted.file), timeout_seconds=_TIMEOUT_SECONDS)
    refuse_ends(wanted, facts.clusters)
    return facts


def read(text: str, file: Path) -> "Configuration":
    """Read the text as if it stood in the file. Raises ConfigError."""
    from twinlog.config import load
    from twinlog.config.values.providers import OneText

    return load(file, environ={}, files=OneText(str(file), text.encode("ascii")), strict=True)


def refuse_ends(wanted: FirstFlow, found: Mapping[str, "ClusterFacts"]) -> None:
    """Raises NoAnswerError or ConfigError unless these are two clusters that answer."""
    for end in wanted.ends:
        failure = found[end.alias].unreachable
        if failure is not None:
            alias, file = end.alias, wanted.file
            raise NoAnswerError(
                f"{end.bootstrap_servers}: {failure}. Check host and port, and that the brokers'"
                " advertised.listeners can be reached from here. If the cluster wants TLS or a login, write"
                f" {file} with {alias}.security.protocol, {alias}.ssl.truststore.location,"
                f" {alias}.sasl.mechanism and {alias}.sasl.jaas.config (docs/logins.md), then run"
                f" `twinlog run {file}`",
                key=end.bootstrap_servers,
            ) from failure
    one, other = wanted.ends
    if found[one.alias].cluster_id == found[other.alias].cluster_id:
        raise ConfigError(
            f"{one.bootstrap_servers} and {other.bootstrap_servers} are the same cluster, with id"
            f" {found[one.alias].cluster_id}: a cluster is not copied into itself; give the address of"
            " another cluster",
            key="TARGET",
        )


def refuse_errors(facts: "Facts") -> None:
    """Raises ConfigError with the errors that preflight finds."""
    if errors := errors_in(facts):
        raise ConfigError("\n".join(errors))


def errors_in(facts: "Facts") -> list[str]:
    """What preflight would call an error, a line for each with its remedy."""
    from twinlog.preflight.checks import judge
    from twinlog.preflight.facts import Severity

    return [
        printable(f"{each.about}: {each.check}: {each.message}" + (f"; {each.remedy}" if each.remedy else ""))
        for each in judge(facts)
        if each.level is Severity.ERROR
    ]


def told(wanted: FirstFlow, facts: "Facts") -> list[str]:
    """What will be copied, for people."""
    flow = facts.flows[0]
    found = [(end, facts.clusters[end.alias]) for end in wanted.ends]
    lines = [
        f"{end.alias}: {end.bootstrap_servers}, {counted(cluster.broker_count, 'broker')}, cluster id"
        f" {cluster.cluster_id}"
        for end, cluster in found
    ]
    every = counted(len(facts.clusters[flow.flow.source].topics), "topic")
    lines.append(f"{flow.flow}: {len(flow.topics)} of {every} now, and new ones that match")
    lines += [f"  {topic.name} -> {topic.target_name}" for topic in flow.topics[:_SHOWN_TOPICS]]
    if len(flow.topics) > _SHOWN_TOPICS:
        lines.append(f"  and {len(flow.topics) - _SHOWN_TOPICS} more")
    return lines


def is_there(file: Path, text: str) -> bool:
    """Whether the file has this content. Raises ConfigError if it has another one."""
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise unwritable(file, error) from error
    if content != text.encode("ascii"):
        raise ConfigError(
            f"{file} exists with other content and is not replaced: `twinlog run {file}` runs it as it is;"
            " --file NAME writes another file",
            key="--file",
        )
    return True


# `twinlog init`: a first properties file, by five questions.


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
        wanted = _answers(file)
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


def _name_answer(names: str) -> str:
    """Whoever answers is asked again at once."""
    try:
        _two_names(names)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from error
    return names


def _answers(file: Path) -> FirstFlow:
    source = typer.prompt("1/5 Brokers to copy from (host:port,…)")
    target = typer.prompt("2/5 Brokers to copy to (host:port,…)")
    names = typer.prompt("3/5 Names of both clusters", default="source,target", value_proc=_name_answer)
    topics = typer.prompt("4/5 Topics to copy, names and regular expressions", default=".*")
    alias = names.partition(",")[0].strip()
    keeps = typer.confirm(f"5/5 Copies keep their names (orders, not {alias}.orders)", default=False)
    return wanted_from(source, target, topics=topics, names=names, file=file, keep_names=keeps)

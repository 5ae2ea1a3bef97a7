"""`twinlog convert FILE`: converts the configuration of another replicator into a properties file."""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from twinlog.cli.common.call import Call, printing
from twinlog.cli.common.fields import Fields, as_json, table
from twinlog.cli.common.options import argument, flag, option
from twinlog.cli.common.private_file import write_private
from twinlog.errors import ConfigError
from twinlog.imports import Format, Imported, ImportOptions, Line, import_text
from twinlog.imports.documents import MAX_BYTES, check_size, helm_values
from twinlog.imports.references import DEFAULT_SECRETS_DIR
from twinlog.printable import printable


@printing
def import_command(
    call: Call,
    file: Path = argument("FILE", "What to convert; - for stdin."),
    to: Path | None = option("--to FILE", "Write the file here, not to stdout.", None),
    to_helm: Path | None = option(
        "--to-helm FILE", "Write values for the Helm chart here, with the file and its Secrets.", None
    ),
    force: bool = flag("--force", "Let existing files be replaced."),
    format_: str = option(
        "--format auto|strimzi|connect|ureplicator|brooklin",
        "The format of FILE. auto recognizes it, except for a plain list of topics.",
        "auto",
    ),
    offsets_topic: str = option(
        "--offsets-topic TOPIC",
        "The Connect worker's offset.storage.topic, which holds the positions; REST omits it.",
        "",
    ),
    source: str = option("--source A=HOST:PORT,…", "The source of a list of topics: alias and brokers.", ""),
    target: str = option("--target B=HOST:PORT,…", "The target of a list of topics: alias and brokers.", ""),
    group: str = option(
        "--group GROUP", "The group that committed offsets on the source, for a list of topics.", ""
    ),
    mm2_version: str = option(
        "--mm2-version X.Y", "The Kafka release of MirrorMaker 2: its defaults changed with 4.0 and 4.3.", ""
    ),
    secrets_dir: str = option(
        "--secrets-dir DIR",
        "Where Secrets are mounted for Twinlog, as DIR/SECRET/KEY.",
        "/etc/twinlog/secrets",
    ),
) -> None:
    """Convert the configuration of another replicator into a properties file for Twinlog, with a report.

    FILE has one of these formats, and the command recognizes which; `-` reads stdin:

    \b
    Strimzi: KafkaMirrorMaker2 (v1, v1beta2) and KafkaConnector, YAML or JSON
      kubectl get kafkamirrormaker2 -o yaml > mirror.yaml
      twinlog convert mirror.yaml --to-helm values.yaml
    Kafka Connect: MirrorMaker 2 or Confluent Replicator, as its REST API
    returns it; also of MSK Connect, Google, Confluent's operator, and
    properties files
      curl 'HOST:8083/connectors?expand=info&expand=status' > connectors.json
      twinlog convert connectors.json --offsets-topic connect-offsets
    uReplicator: the answer of GET /topics, a list with a topic a line, a
    topic mapping
      twinlog convert topics.txt --format ureplicator --group GROUP
        --source A=a:9092 --target B=b:9092
    Brooklin: the answer of GET /datastream

    Without --to and --to-helm the properties file goes to stdout and the report to stderr. The report has a
    line for each setting: mapped; ignored, and why; to do, such as a Secret to mount; impossible, and what
    to do about it. A flow whose copies would differ from before is written with `enabled=false`. Secrets
    become references to config providers; the command shows no secret.

    The command connects to no cluster. Afterwards run `twinlog preflight FILE`; docs/migration/ has all
    steps.

    Exit codes: 0 everything was mapped or can be left out; 1 something is impossible (the file is written);
    2 FILE cannot be read (the message names the line), or --to exists.
    """
    if format_ not in [*Format]:
        raise ConfigError(f"--format {format_!r}: expected one of {', '.join(Format)}")
    for name, path in (("--to", to), ("--to-helm", to_helm)):
        if path is not None and path.exists() and not force:
            raise ConfigError(f"{name} {path}: the file exists; --force replaces it")
    if to_helm is not None and secrets_dir != DEFAULT_SECRETS_DIR:
        raise ConfigError(
            f"--secrets-dir: the chart mounts Secrets at {DEFAULT_SECRETS_DIR}; leave the option out"
        )
    options = ImportOptions(
        format=Format(format_),
        source=source,
        target=target,
        group=group,
        offsets_topic=offsets_topic,
        mm2_version=_version(mm2_version),
        secrets_dir=secrets_dir,
        by_chart=to_helm is not None and to is None,
    )
    imported = import_text(_read(file), file="stdin" if str(file) == "-" else str(file), options=options)
    if to is not None:
        # It may contain secrets.
        write_private(to, imported.properties.encode("ascii"), replace=force)
    if to_helm is not None:
        write_private(to_helm, helm_values(imported.properties).encode("ascii"), replace=force)
    written = [path for path in (to, to_helm) if path is not None]

    def text() -> None:
        if not written:
            typer.echo(imported.properties, nl=False)
        _print_report(imported.lines, written)

    call.tell(_as_json(imported, to), text, fails=not imported.complete)


def _version(text: str) -> tuple[int, int] | None:
    if not text:
        return None
    parts = text.split(".")
    if len(parts) < 2 or not all(part.isdigit() for part in parts[:2]):
        raise ConfigError(f"--mm2-version {text!r}: expected a release of Kafka, such as 3.9")
    return int(parts[0]), int(parts[1])


def _read(file: Path) -> str:
    """Raises ConfigError."""
    try:
        if str(file) == "-":
            content = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with file.open("rb") as stream:
                content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror or error}") from error
    if not content.strip():
        raise ConfigError(f"{'stdin' if str(file) == '-' else file}: it is empty")
    check_size(content, "stdin" if str(file) == "-" else str(file))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file}:{line}: a byte that is not UTF-8") from error


def _as_json(imported: "Imported", to: Path | None) -> dict[str, Any]:
    return {
        "format": imported.format.value,
        "complete": imported.complete,
        "to": None if to is None else str(to),
        "properties": imported.properties if to is None else None,
        "report": [as_json(_LINE, line) for line in imported.lines],
    }


_LINE: Fields["Line"] = table("fate place line becomes text")
_COLOURS = {
    "mapped": typer.colors.GREEN,
    "ignored": typer.colors.BRIGHT_BLACK,
    "to do": typer.colors.YELLOW,
    "impossible": typer.colors.RED,
}


def _print_report(lines: "tuple[Line, ...]", written: Sequence[Path]) -> None:
    aside, order = not written, list(_COLOURS)
    # What somebody has to read stands last.
    for line in sorted(lines, key=lambda each: order.index(each.fate.value)):
        where = f"line {line.line}: " if line.line else ""
        becomes = f" -> {line.becomes}" if line.becomes else ""
        text = f": {line.text}" if line.text else ""
        typer.secho(f"{line.fate.value:11}", fg=_COLOURS[line.fate.value], nl=False, err=aside)
        typer.echo(printable(f"{where}{line.place}{becomes}{text}"), err=aside)
    counted = Counter(line.fate.value for line in lines)
    total = ", ".join(f"{counted[fate]} {fate}" for fate in _COLOURS)
    typer.echo("; ".join([total, *(f"{path} is written" for path in written)]), err=aside)

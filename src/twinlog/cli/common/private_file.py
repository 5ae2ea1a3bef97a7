"""Files that commands write for their caller alone."""

import os
from pathlib import Path

from twinlog.errors import ConfigError


def refuse_to_replace(file: Path, *, begins: bytes) -> None:
    """Raises ConfigError for a file that is there, and does not begin as those that the command writes: it is
    something else, such as the properties file."""
    try:
        with file.open("rb") as stream:
            begin = stream.read(len(begins))
    except FileNotFoundError:
        return
    except OSError as error:
        raise unwritable(file, error) from error
    if begin and begin != begins:
        raise ConfigError(
            f"{file} exists and was not written by this command, so it is not replaced: name another file",
            metadata={"key": "FILE"},
        )


def write_private(file: Path, content: bytes) -> None:
    """The whole file or nothing, and for its owner alone. Raises ConfigError."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(file)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise unwritable(file, error) from error


def unwritable(file: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{file}: cannot be written: {error.strerror or error}", metadata={"key": "FILE"})

"""Writes files that only their owner may read."""

import os
import tempfile
from pathlib import Path

from twinlog.errors import ConfigError


def refuse_to_replace(file: Path, *, begins: bytes) -> None:
    """Raises ConfigError for an existing file that does not begin like the command's own files: it is
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
            key="FILE",
        )


def write_private(file: Path, content: bytes, *, replace: bool = True) -> None:
    """Write the whole file or nothing, readable by its owner only. Raises ConfigError; without `replace` also
    for an existing file."""
    try:
        # Use a name that nobody can guess, because others may be able to write to the directory.
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            if replace:
                Path(name).replace(file)
            else:
                # Unlike a rename, a link does not replace a file that was created in between.
                file.hardlink_to(name)
        finally:
            Path(name).unlink(missing_ok=True)
    except FileExistsError as error:
        raise ConfigError(f"{file} is there already", key="FILE") from error
    except OSError as error:
        raise unwritable(file, error) from error


def read_file(file: Path, **more: str) -> bytes:
    """Its content. Raises ConfigError."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror or error}", **more) from error


def unwritable(file: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{file}: cannot be written: {error.strerror or error}", key="FILE")

"""Files that commands write for their caller alone."""

import os
import tempfile
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


def write_private(file: Path, content: bytes, *, replace: bool = True) -> None:
    """The whole file or nothing, and for its owner alone. Raises ConfigError, without `replace` also for a
    file that is there."""
    try:
        # Under a name that nobody can guess: the directory may be one that others may write into.
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            if replace:
                Path(name).replace(file)
            else:
                # A link, unlike a rename, replaces nothing that came in between.
                file.hardlink_to(name)
        finally:
            Path(name).unlink(missing_ok=True)
    except FileExistsError as error:
        raise ConfigError(f"{file} is there already", metadata={"key": "FILE"}) from error
    except OSError as error:
        raise unwritable(file, error) from error


def unwritable(file: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{file}: cannot be written: {error.strerror or error}", metadata={"key": "FILE"})

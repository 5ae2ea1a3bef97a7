"""What others configured their mirroring with, turned into a properties file. Pure: text in, text out.

Every importer brings its format to connectors of Kafka Connect (`connector.py`; `connectors.py` writes them
into a draft of the file) or to a list of topics (`topic_lists.py`), and says what became of each setting
(`report.py`). Nothing is guessed that decides what is copied: a flow that cannot be carried over as it is is
switched off, with what to do.
"""

from twinlog.imports.importer import Format, Imported, ImportOptions, import_text
from twinlog.imports.report import Fate, Line

__all__ = ["Fate", "Format", "ImportOptions", "Imported", "Line", "import_text"]

"""Converts the configurations of other replicators into a properties file. Pure: text in, text out.

Every importer converts its format into connectors of Kafka Connect (`connector.py`; `connectors.py` writes
them into a draft of the file) or a list of topics (`topic_lists.py`), and reports each setting (`report.py`).
Nothing that decides what is copied is guessed: a flow that cannot be converted exactly is switched off, with
a remedy.
"""

from twinlog.imports.draft import Fate as Fate
from twinlog.imports.draft import Line as Line
from twinlog.imports.importer import Format as Format
from twinlog.imports.importer import Imported as Imported
from twinlog.imports.importer import ImportOptions as ImportOptions
from twinlog.imports.importer import import_text as import_text

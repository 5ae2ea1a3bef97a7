"""JSON Schema as the tests of this folder want it: at once."""

import sys

# Where `rfc3987_syntax` is installed, jsonschema loads it for two formats that nothing here asks for. That
# takes a second of every process, as it compiles a grammar.
if "jsonschema" not in sys.modules:
    sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
    import jsonschema  # noqa: F401

    del sys.modules["rfc3987_syntax"]

"""The licence of an installed package as an SPDX expression."""

from importlib.metadata import PackageMetadata
from typing import Final

_BY_CLASSIFIER: Final = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
_BY_WORDS: Final = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache 2": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache software license 2.0": "Apache-2.0",
    "bsd 2-clause license": "BSD-2-Clause",
    "bsd license": "BSD-3-Clause",
    "isc license": "ISC",
    "mit license": "MIT",
}
_IDS: Final = frozenset({"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0", "PSF-2.0"})


def licence_of(metadata: PackageMetadata) -> str:
    """Its own expression, else what its older fields mean; empty when nothing is said."""
    fields = metadata.json
    if expression := fields.get("license_expression"):
        return str(expression)
    words = str(fields.get("license", "")).strip()
    if words in _IDS:
        return words
    classified = {
        _BY_CLASSIFIER[name]
        for classifier in metadata.get_all("Classifier") or ()
        if (name := classifier.rpartition(" :: ")[2]) in _BY_CLASSIFIER
    }
    return " OR ".join(sorted(classified)) or _BY_WORDS.get(words.lower(), "")

"""Hypothesis profiles: `ci` gives every run the same examples, `exhaustive` looks for new ones.

Chosen by HYPOTHESIS_PROFILE.
"""

import os

from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None, database=None, max_examples=40)
settings.register_profile("exhaustive", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

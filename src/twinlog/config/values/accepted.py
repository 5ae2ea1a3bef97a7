"""Notices about values that are accepted and read differently from how they are written."""

from collections import Counter

from twinlog.config.keys.spec import INTERVAL_SUFFIX, SWITCH_SUFFIX, KeySpec, split_list
from twinlog.config.problems import Findings
from twinlog.properties import Property


def tell_reading(spec: KeySpec, prop: Property, findings: Findings) -> None:
    """Report how a valid value is read, if it does not say so itself. Values from providers are not shown."""
    if spec.distinct:
        for element, count in Counter(split_list(prop.value)).items():
            if count > 1:
                named = "an element" if prop.written is not None else repr(element)
                findings.warning(prop.key, f"{named} is named twice and counts once", line=prop.line)
    if spec.negative_is_off and float(prop.value) < 0:
        switch = spec.name.removesuffix(INTERVAL_SUFFIX) + SWITCH_SUFFIX
        findings.info(prop.key, f"is negative, which counts as {switch}=false", line=prop.line)

"""How a writer of a flow learns that another process has taken it over."""

from typing import Final

FENCED: Final = "PRODUCER_FENCED"
"""The reason of an error when ids were fenced, or a newer claim to the flow was read. It is final: the
position that was reached is what the target's log says.
"""

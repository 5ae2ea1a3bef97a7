"""How a writer of a flow learns that another process has taken the flow over."""

from typing import Final

FENCED: Final = "PRODUCER_FENCED"
"""The reason of the error when ids are fenced, or a newer claim to the flow is found. It is final: the
target's log decides which position was reached."""

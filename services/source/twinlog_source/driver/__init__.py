"""The driver of a flow: ownership, epochs, the tasks' streams, and operators' commands."""

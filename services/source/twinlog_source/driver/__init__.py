"""The driver of a flow: ownership, epochs, control streams of the tasks, and operators' commands."""

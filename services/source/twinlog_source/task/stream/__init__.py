"""The task's end of the control stream: commands from the driver, reports to it."""

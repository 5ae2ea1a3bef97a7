"""`twinlog verify`: reads both logs of every partition and compares them (twinlog.verify decides)."""

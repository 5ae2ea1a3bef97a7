"""`twinlog verify`: both logs of every partition read and compared (twinlog.verify decides)."""

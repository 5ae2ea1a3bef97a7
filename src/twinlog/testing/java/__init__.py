"""Runs MirrorMaker 2, Connect and Kafka's tools as users do, for comparison with Twinlog."""

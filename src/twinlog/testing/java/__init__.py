"""MirrorMaker 2, Connect and the tools of Kafka, run as their users would: what Twinlog is compared with."""

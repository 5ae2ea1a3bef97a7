"""Runs the four services as child processes: MM2's dedicated mode (`twinlog run`).

It uses no gRPC and no Kafka client: it starts, watches, restarts and stops the children, and merges their
logs.
"""

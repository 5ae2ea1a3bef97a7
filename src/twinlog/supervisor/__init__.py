"""The process that runs the four services as its children: MM2's dedicated mode (`twinlog run`).

It holds no gRPC and no Kafka client: it starts, watches, restarts and stops, and merges what the children
log.
"""

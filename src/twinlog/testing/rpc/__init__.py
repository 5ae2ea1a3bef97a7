"""gRPC without sockets and threads: the part of `grpc.aio` that Twinlog uses, in one event loop.

    network = RpcNetwork()
    server = MemoryRpc(network).server(interceptors=[...])
    channel = MemoryRpc(network).insecure_channel("localhost:17401")

A `MemoryRpc` stands for `grpc.aio` in one process; generated stubs and `add_…Servicer_to_server` work on it.
Messages cross as bytes. The suite in tests/contract/rpc runs against it and against gRPC; where they differ,
this one is wrong.
"""

from twinlog.testing.rpc.rpc import MemoryRpc as MemoryRpc
from twinlog.testing.rpc.rpc import RpcNetwork as RpcNetwork

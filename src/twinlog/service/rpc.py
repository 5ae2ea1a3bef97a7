"""What opens channels and servers: gRPC, or what stands for it in one event loop."""

from typing import Any, Final, Protocol

import grpc


class Rpc(Protocol):
    """The functions of `grpc.aio` of these names."""

    @property
    def server(self) -> Any: ...

    @property
    def insecure_channel(self) -> Any: ...

    @property
    def secure_channel(self) -> Any: ...


GRPC: Final[Rpc] = grpc.aio

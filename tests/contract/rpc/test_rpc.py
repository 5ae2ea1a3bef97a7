"""gRPC in memory behaves as gRPC does."""

from typing import Any

import grpc
import pytest

from contract.rpc.rpc_contract import RpcContract
from twinlog.testing.rpc import MemoryRpc, RpcNetwork


class TestGrpc(RpcContract):
    @pytest.fixture
    def rpc(self) -> Any:
        return grpc.aio


class TestMemory(RpcContract):
    @pytest.fixture
    def rpc(self) -> Any:
        return MemoryRpc(RpcNetwork())

"""What a flow wants is told to the other flows of the process by the event loop alone."""

import threading
from pathlib import Path

from twinlog.model import Flow
from twinlog_configsync.model.schedule import Scope
from twinlog_configsync.planning.desired import DesiredBindings
from unit.configsync.configsync_rig import READ_ORDERS, make_flow


class NotingClaims(DesiredBindings):
    """Notes in which threads flows claim."""

    def __init__(self, flow: Flow) -> None:
        super().__init__({flow}, {flow})
        self.threads: set[int] = set()

    def claim_acls(self, flow: Flow, wanted: frozenset[str]) -> None:
        self.threads.add(threading.get_ident())
        super().claim_acls(flow, wanted)

    def shares_acls(self, flow: Flow) -> bool:
        self.threads.add(threading.get_ident())
        return super().shares_acls(flow)


async def test_no_thread_touches_what_the_flows_share(tmp_path: Path) -> None:
    flow = make_flow(tmp_path)
    flow.source.acls = {READ_ORDERS}
    flow.claims = claims = NotingClaims(flow.config.flow)
    flow.restart()
    await flow.refresh([Scope.TOPICS, Scope.ACLS])
    assert claims.threads == {threading.get_ident()}

"""The boards of Twinlog for Grafana, in the order of a look at 3 a.m."""

from collections.abc import Sequence

from deploy.observability.boards.config import CONFIG
from deploy.observability.boards.ends import ENDS
from deploy.observability.boards.flows import FLOWS_BOARD
from deploy.observability.boards.glance import GLANCE
from deploy.observability.boards.migration import MIGRATION
from deploy.observability.boards.offsets import OFFSETS
from deploy.observability.boards.services import SERVICES
from deploy.observability.grafana import Board

BOARDS: Sequence[Board] = (GLANCE, FLOWS_BOARD, ENDS, OFFSETS, CONFIG, MIGRATION, SERVICES)

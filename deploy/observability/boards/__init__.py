"""The boards of Twinlog for Grafana, in the order of a look at 3 a.m."""

from collections.abc import Sequence

from deploy.observability.boards.flows import ENDS, FLOWS_BOARD, OFFSETS
from deploy.observability.boards.glance import GLANCE
from deploy.observability.boards.migration import MIGRATION
from deploy.observability.boards.services import CONFIG, SERVICES
from deploy.observability.grafana import Board

BOARDS: Sequence[Board] = (GLANCE, FLOWS_BOARD, ENDS, OFFSETS, CONFIG, MIGRATION, SERVICES)

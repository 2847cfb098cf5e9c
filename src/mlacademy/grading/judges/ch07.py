"""Judges of chapter 07: bulk copies, mbarriers, tensor maps, clusters."""

from __future__ import annotations

from mlacademy.grading.judges.box_turn import TURN_BOX
from mlacademy.grading.judges.cluster_parts import CLUSTER_TOTAL
from mlacademy.grading.judges.half_tiles import SHARE_TILE
from mlacademy.grading.judges.tile_copy import COPY_TILE
from mlacademy.grading.judges.tile_ring import DOUBLE_TILES

EXERCISES = (COPY_TILE, DOUBLE_TILES, TURN_BOX, CLUSTER_TOTAL, SHARE_TILE)

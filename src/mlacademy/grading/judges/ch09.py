"""Judges of chapter 09, the decode pipeline: meetings of three roles, a tile, a softmax step, a merge, and times."""

from __future__ import annotations

from mlacademy.grading.judges import pipeline_merge, pipeline_roles, pipeline_rows, pipeline_softmax, pipeline_times

EXERCISES = (
    pipeline_roles.THREE_ROLES,
    pipeline_rows.CONVERT_ROWS,
    pipeline_softmax.SOFTMAX_STEP,
    pipeline_merge.MERGE,
    pipeline_times.PIPELINE,
)

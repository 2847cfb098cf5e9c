"""Judges of chapter 06, split and combine: a partial result, the merge, the sink, and all of it together."""

from __future__ import annotations

from mlacademy.grading.judges import combine_merge, combine_sink

EXERCISES = (combine_merge.PARTIAL, combine_merge.MERGE, combine_sink.SINK, combine_sink.WHOLE)

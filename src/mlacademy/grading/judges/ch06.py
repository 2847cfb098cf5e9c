"""Judges of chapter 06, split and combine: a partial result, the merge, the sink, and all of it together."""

from __future__ import annotations

from mlacademy.grading.judges import combine_merge, combine_partial, combine_sink, combine_whole

EXERCISES = (combine_partial.PARTIAL, combine_merge.MERGE, combine_sink.SINK, combine_whole.WHOLE)

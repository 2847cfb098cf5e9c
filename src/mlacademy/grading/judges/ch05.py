"""Judges of chapter 05, online softmax: a safe row, one step, a whole stream, a lagging max."""

from __future__ import annotations

from mlacademy.grading.judges import softmax_rows, softmax_streams

EXERCISES = (softmax_rows.SAFE, softmax_rows.STEP, softmax_streams.STREAM, softmax_streams.LAZY)

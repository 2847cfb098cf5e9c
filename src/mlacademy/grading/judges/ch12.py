"""Judges of chapter 12, the compiled kernels: splits, parameters, errors, rooflines, stale lengths, a guard."""

from mlacademy.grading.judges.decode_bound import ROOF
from mlacademy.grading.judges.error_bounds import BOUNDS
from mlacademy.grading.judges.kernel_params import PACK
from mlacademy.grading.judges.kernel_splits import SPLITS
from mlacademy.grading.judges.length_guard import GUARD
from mlacademy.grading.judges.stale_lengths import STALE

EXERCISES = (SPLITS, PACK, BOUNDS, ROOF, STALE, GUARD)

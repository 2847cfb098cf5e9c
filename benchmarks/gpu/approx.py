"""How close are the emulator's .approx functions to the GPU's? Every f32 (or f16) operand, result by result.

Writes benchmarks/results/approx-<card>.json: for each opcode the count of results at each distance in ulp.
"""

from __future__ import annotations

import sys

import convert

if __name__ == "__main__":
    sys.exit(convert.main("approx", lambda op: ".approx" in op.opcode))

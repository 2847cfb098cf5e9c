"""Exercises of chapter 02: decode and encode E4M3 (02.1, 02.2), scales of tiles (02.3), tokens into pages (02.4)."""

from mlacademy.grading.judges.fp8_codes import DECODE_BYTE
from mlacademy.grading.judges.fp8_encode import ENCODE_NUMBER
from mlacademy.grading.judges.tile_scales import TILE_SCALES
from mlacademy.grading.judges.token_bytes import PACK_TOKENS

EXERCISES = (DECODE_BYTE, ENCODE_NUMBER, TILE_SCALES, PACK_TOKENS)

"""Right and wrong answers to the exercises on the FP8 cache."""

import bisect
import math
import struct

import ml_dtypes
import numpy as np
import torch

from mlacademy import cache, fp8
from mlacademy.grading.answers import right, wrong

# 02.1


@right("02.1", "by arithmetic")
def decode_byte(code):
    sign = -1.0 if code >= 128 else 1.0
    field, mantissa = divmod(code % 128, 8)
    if field == 15 and mantissa == 7:
        return float("nan")
    if field == 0:
        return sign * mantissa * 2.0**-9
    return sign * (8 + mantissa) * 2.0 ** (field - 10)


@right("02.1", "through the bits of a float32")
def decode_byte_by_bits(code):
    if code & 0x7F == 0x7F:
        return float("nan")
    wide = (code & 0x80) << 24 | (code & 0x7F) << 20
    return struct.unpack("<f", struct.pack("<I", wide))[0] * 2.0**120


@right("02.1", "by walking up from zero")
def decode_byte_by_walking(code):
    if code & 0x7F == 0x7F:
        return float("nan")
    value = 0.0
    for step in range(code & 0x7F):
        value += 2.0 ** (max(step // 8, 1) - 10)
    return -value if code & 0x80 else value


@wrong("02.1", "bias 8", says="You used a bias of 8")
def decode_bias_8(code):
    if code & 0x7F == 0x7F:
        return float("nan")
    e, m = code >> 3 & 15, code & 7
    value = (1 + m / 8) * 2.0 ** (e - 8) if e else m / 8 * 2.0**-6
    return -value if code & 0x80 else value


@wrong("02.1", "no subnormals", says="Those are subnormal: they have none")
def decode_all_normal(code):
    if code & 0x7F == 0x7F:
        return float("nan")
    value = (1 + (code & 7) / 8) * 2.0 ** ((code >> 3 & 15) - 7)
    return -value if code & 0x80 else value


@wrong("02.1", "subnormals one power too low", says="half as large as they are: you took 0 - 7")
def decode_exponent_minus_7(code):
    if code & 0x7F == 0x7F:
        return float("nan")
    e, m = code >> 3 & 15, code & 7
    value = ((1 if e else 0) + m / 8) * 2.0 ** (e - 7)
    return -value if code & 0x80 else value


@wrong("02.1", "no NaN", says="You decoded the NaN pattern as 480")
def decode_without_nan(code):
    e, m = code >> 3 & 15, code & 7
    value = (1 + m / 8) * 2.0 ** (e - 7) if e else m / 8 * 2.0**-6
    return -value if code & 0x80 else value


@wrong("02.1", "as IEEE does", says="E4M3 has no infinity")
def decode_like_ieee(code):
    e, m = code >> 3 & 15, code & 7
    if e == 15:
        value = float("nan") if m else float("inf")
    else:
        value = (1 + m / 8) * 2.0 ** (e - 7) if e else m / 8 * 2.0**-6
    return -value if code & 0x80 else value


@wrong("02.1", "no sign", says="You ignored the sign bit")
def decode_without_sign(code):
    code &= 0x7F
    if code == 0x7F:
        return float("nan")
    e, m = code >> 3, code & 7
    return (1 + m / 8) * 2.0 ** (e - 7) if e else m / 8 * 2.0**-6


@wrong("02.1", "E5M2", says="You decoded E5M2")
def decode_e5m2(code):
    e, m = code >> 2 & 31, code & 3
    value = (1 + m / 4) * 2.0 ** (e - 15) if e else m / 4 * 2.0**-14
    return -value if code & 0x80 else value


@wrong("02.1", "text", says="is the text '1.0'")
def decode_to_text(code):
    return str(decode_byte(code))


@wrong("02.1", "sign in the exponent", says="The sign bit leaked into your exponent")
def decode_with_five_exponent_bits(code):
    if code & 0x7F == 0x7F:
        return float("nan")
    e, m = code >> 3, code & 7
    value = (1 + m / 8) * 2.0 ** (e - 7) if e else m / 8 * 2.0**-6
    return -value if code & 0x80 else value


@wrong("02.1", "one NaN", says="both 0x7F and 0xFF are NaN")
def decode_one_nan(code):
    return float("nan") if code == 0x7F else decode_without_nan(code)


@wrong("02.1", "subnormals in whole steps", says="the mantissa counts eighths there as well")
def decode_whole_subnormals(code):
    value = decode_byte(code)
    return value * 8 if code & 0x78 == 0 else value


@wrong("02.1", "torch's cast", says="The answer uses torch.float8_e4m3fn")
def decode_by_torch(code):
    return torch.tensor([code], dtype=torch.uint8).view(torch.float8_e4m3fn).float().item()


@wrong("02.1", "the library's own", says="this exercise asks you to write that yourself")
def decode_by_library(code):
    return float(fp8.decode_e4m3(code))


# 02.2


@right("02.2", "by counting steps")
def encode_number(x):
    if x != x:
        return 0x7F
    sign = 0x80 if math.copysign(1.0, x) < 0 else 0
    a = min(abs(x), 500.0)
    exponent = -6
    while 2.0 ** (exponent + 1) <= a:
        exponent += 1
    steps = round(a * 2.0 ** (3 - exponent))
    return sign + min(8 * (exponent + 6) + steps, 0x7E)


@right("02.2", "by searching all values")
def encode_by_search(x):
    if math.isnan(x):
        return 0x7F
    values = [m * 2.0**-9 for m in range(8)]
    values += [(8 + m) * 2.0 ** (e - 10) for e in range(1, 16) for m in range(8)]
    high = bisect.bisect_left(values, abs(x))
    choices = [code for code in (high - 1, high) if 0 <= code < 128] or [127]
    code = min(choices, key=lambda code: (abs(values[code] - abs(x)), code % 2))
    return min(code, 0x7E) | (0x80 if struct.pack(">d", x)[0] & 0x80 else 0)


def _steps(x, round_steps, *, top=0x7E):
    if math.isnan(x):
        return 0x7F
    sign = 0x80 if math.copysign(1.0, x) < 0 else 0
    a = min(abs(x), 1e30)
    exponent = max(math.frexp(a)[1] - 1, -6) if a else -6
    code = (exponent + 6) * 8 + round_steps(a / 2.0 ** (exponent - 3))
    return sign | (code if code <= 0x7E else top)


@wrong("02.2", "ties away from zero", says="You rounded a tie away from zero")
def encode_half_up(x):
    return _steps(x, lambda steps: int(steps + 0.5))


@wrong("02.2", "cuts", says="You cut the surplus bits off")
def encode_cut(x):
    return _steps(x, int)


@wrong("02.2", "overflow to NaN", says="You turned overflow into NaN")
def encode_overflow_nan(x):
    return _steps(x, round, top=0x7F)


@wrong("02.2", "no subnormals", says="Subnormal codes reach down to 2^-9")
def encode_flush(x):
    if abs(x) < 2.0**-6:
        return 0x80 if math.copysign(1, x) < 0 else 0
    return _steps(x, round)


@wrong("02.2", "lost carry", says="You lost a carry")
def encode_without_carry(x):
    if math.isnan(x):
        return 0x7F
    sign = 0x80 if math.copysign(1.0, x) < 0 else 0
    a = min(abs(x), 448.0)
    if a < 2.0**-6:
        return sign | round(a * 512)
    fraction, exponent = math.frexp(a)
    return sign | (exponent + 6) << 3 | round((2 * fraction - 1) * 8) % 8


@wrong("02.2", "NaN above 448", says="numbers up to 464 would even round to 448")
def encode_nan_above_448(x):
    if abs(x) > 448:
        return 0xFF if x < 0 else 0x7F
    return _steps(x, round)


@wrong("02.2", "minus zero lost", says="You lost the sign of -0.0")
def encode_without_minus_zero(x):
    return encode_number(x) if x else 0


@wrong("02.2", "infinity is NaN", says="You encoded infinity as NaN")
def encode_infinity_nan(x):
    if math.isinf(x):
        return 0x7F if x > 0 else 0xFF
    return encode_number(x)


@wrong("02.2", "NaN slips through", says="You encoded NaN as a number")
def encode_nan_as_number(x):
    return 0x7E if math.isnan(x) else encode_number(x)


@wrong("02.2", "ties to the smaller neighbour", says="You sent a tie to the smaller neighbour")
def encode_nearest_first(x):
    if math.isnan(x):
        return 0x7F
    values = [decode_byte(code) for code in range(0x7F)]
    code = min(range(0x7F), key=lambda code: abs(values[code] - min(abs(x), 448.0)))
    return code | (0x80 if math.copysign(1.0, x) < 0 else 0)


@wrong("02.2", "frexp(0)", says="frexp(0) gives the exponent 0")
def encode_zero_as_normal(x):
    return encode_number(x) if x else encode_number(x) | 0x28


@wrong("02.2", "below 2^-9 to zero", says="You sent everything below 2^-9 to zero")
def encode_flush_early(x):
    return encode_number(x) & 0x80 if abs(x) < 2.0**-9 else encode_number(x)


@wrong("02.2", "no sign", says="You ignored the sign")
def encode_without_sign(x):
    return encode_number(abs(x))


@wrong("02.2", "two's complement", says="A float keeps its sign apart")
def encode_complement(x):
    return encode_number(x) if math.copysign(1.0, x) > 0 else -encode_number(abs(x)) & 0xFF


@wrong("02.2", "bias 8", says="Your exponent field is one too large")
def encode_bias_8(x):
    return encode_number(x) if x != x else min(encode_number(abs(x)) + 8, 0x7E) | (encode_number(x) & 0x80)


@wrong("02.2", "subnormals normalised", says="You took a leading 1 away from a subnormal number")
def encode_normalised(x):
    if not 0 < abs(x) < 2.0**-6:
        return encode_number(x)
    return round((2 * math.frexp(abs(x))[0] - 1) * 8) | (0x80 if x < 0 else 0)


@wrong("02.2", "away from zero", says="You rounded away from zero")
def encode_ceil(x):
    return _steps(x, math.ceil)


@wrong("02.2", "float32 first", says="You rounded to float32 first")
def encode_through_float32(x):
    with np.errstate(over="ignore"):
        return encode_number(float(np.float32(x)))


@wrong("02.2", "NaN with its sign", says="You kept the sign of NaN")
def encode_signed_nan(x):
    return 0xFF if x != x and math.copysign(1.0, x) < 0 else encode_number(x)


@wrong("02.2", "ml_dtypes", says="The answer uses ml_dtypes.float8_e4m3fn")
def encode_by_ml_dtypes(x):
    return int(np.float64(x).clip(-448, 448).astype(ml_dtypes.float8_e4m3fn).view(np.uint8))


@wrong("02.2", "the library's own", says="this exercise asks you to write that yourself")
def encode_by_library(x):
    return int(fp8.encode_e4m3(x))


# 02.3


@right("02.3", "by frexp")
def tile_scales(x, tile):
    amax = np.abs(x.reshape(x.shape[0], x.shape[1] // tile, tile)).max(axis=-1)
    m = np.maximum(amax / np.float32(448), np.float32(1e-4))
    fraction, exponent = np.frexp(m)
    scales = np.exp2(np.where(fraction > 0.5, exponent, exponent - 1)).astype(np.float32)
    return scales, x / scales.repeat(tile, axis=1)


@right("02.3", "by doubling")
def tile_scales_by_doubling(x, tile):
    n, d = x.shape
    scales, scaled = np.empty((n, d // tile), np.float32), np.empty_like(x)
    for row in range(n):
        for t in range(d // tile):
            part = slice(t * tile, (t + 1) * tile)
            scale = 2.0**-13  # the clamp: the smallest power of two that is at least 1e-4
            while max(abs(float(v)) for v in x[row, part]) > 448 * scale:
                scale *= 2
            scales[row, t], scaled[row, part] = scale, x[row, part] / np.float32(scale)
    return scales, scaled


@right("02.3", "by the bits of m")
def tile_scales_by_bits(x, tile):
    tiles = x.reshape(len(x), -1, tile)
    m = np.maximum(np.abs(tiles).max(-1) / np.float32(448), np.float32(1e-4)).astype(np.float32)
    bits = m.view(np.uint32)
    scales = ((bits + 0x7FFFFF) & 0xFF800000).astype(np.uint32).view(np.float32)
    return scales, (tiles / scales[..., None]).reshape(x.shape)


def _scales(x, tile, scale_of, magnitude=np.abs):
    tiles = x.reshape(len(x), -1, tile)
    with np.errstate(all="ignore"):
        scales = scale_of(magnitude(tiles).max(-1).astype(np.float64)).astype(np.float32)
        return scales, (tiles / scales[..., None]).reshape(x.shape)


def _power_up(m):
    return 2.0 ** np.ceil(np.log2(m))


def _rule(amax):
    return _power_up(np.maximum(amax / 448, 1e-4))


@wrong("02.3", "reciprocal", says="You returned the reciprocals of the scales")
def scales_reciprocal(x, tile):
    scales, scaled = _scales(x, tile, _rule)
    return 1 / scales, scaled


@wrong("02.3", "multiplies", says="you multiplied by them")
def scales_multiplies(x, tile):
    scales, _ = _scales(x, tile, _rule)
    return scales, x * scales.repeat(tile, axis=1)


@wrong("02.3", "no clamp", says="You left out the clamp")
def scales_without_clamp(x, tile):
    return _scales(x, tile, lambda amax: _power_up(amax / 448))


@wrong("02.3", "clamps amax", says="That is DeepGEMM's rule")
def scales_clamp_amax(x, tile):
    return _scales(x, tile, lambda amax: _power_up(np.maximum(amax, 1e-4) / 448))


@wrong("02.3", "clamps last", says="You clamped after rounding up")
def scales_clamp_last(x, tile):
    return _scales(x, tile, lambda amax: np.maximum(_power_up(amax / 448), 1e-4))


@wrong("02.3", "no power of two", says="Your scales are not powers of two")
def scales_no_power(x, tile):
    return _scales(x, tile, lambda amax: np.maximum(amax / 448, 1e-4))


@wrong("02.3", "rounds down", says="You rounded m down")
def scales_down(x, tile):
    return _scales(x, tile, lambda amax: 2.0 ** np.floor(np.log2(np.maximum(amax / 448, 1e-4))))


@wrong("02.3", "rounds to nearest", says="to the nearest integer")
def scales_nearest(x, tile):
    return _scales(x, tile, lambda amax: 2.0 ** np.rint(np.log2(np.maximum(amax / 448, 1e-4))))


@wrong("02.3", "log2 in float32", says="log2 in float32 is too coarse")
def scales_log2(x, tile):
    tiles = x.reshape(len(x), -1, tile)
    m = np.maximum(np.abs(tiles).max(-1) / 448, 1e-4)  # stays float32
    scales = 2 ** np.ceil(np.log2(m))
    return scales, (tiles / scales[..., None]).reshape(x.shape)


@wrong("02.3", "signed maximum", says="a large negative value was overlooked")
def scales_signed(x, tile):
    return _scales(x, tile, _rule, magnitude=lambda tiles: tiles)


@wrong("02.3", "one scale a row", says="You used one scale for the whole row")
def scales_per_row(x, tile):
    row, _ = _scales(x, x.shape[1], _rule)
    scales = np.repeat(row, x.shape[1] // tile, axis=1)
    return scales, x / scales.repeat(tile, axis=1)


@wrong("02.3", "one scale for all rows", says="Rows are different tokens")
def scales_per_column(x, tile):
    tiles = x.reshape(len(x), -1, tile)
    scales = np.repeat(_rule(np.abs(tiles).max((0, 2)).astype(np.float64))[None], len(x), axis=0)
    return scales, (tiles / scales[..., None]).reshape(x.shape)


@wrong("02.3", "reshaped the wrong way", says="A tile is a run of neighbours")
def scales_strided(x, tile):
    tiles = x.reshape(len(x), tile, -1)
    scales = _rule(np.abs(tiles).max(1).astype(np.float64))
    return scales, (tiles / scales[:, None]).reshape(x.shape)


@wrong("02.3", "np.tile", says="divided by the scale of another tile")
def scales_tiled(x, tile):
    scales, _ = _scales(x, tile, _rule)
    return scales, x / np.tile(scales, (1, tile))


@wrong("02.3", "frexp's exponent as it is", says="You always went to the next larger power of two")
def scales_always_up(x, tile):
    return _scales(x, tile, lambda amax: np.ldexp(1.0, np.frexp(np.maximum(amax / 448, 1e-4))[1]))


@wrong("02.3", "adds the clamp", says="You added 1e-4 to m")
def scales_added(x, tile):
    return _scales(x, tile, lambda amax: _power_up(amax / 448 + 1e-4))


@wrong("02.3", "exponents", says="You returned the exponents")
def scales_exponents(x, tile):
    scales, scaled = _scales(x, tile, _rule)
    return np.log2(scales), scaled


@wrong("02.3", "rounds the quotients", says="You rounded the quotients")
def scales_rounded(x, tile):
    scales, scaled = _scales(x, tile, _rule)
    return scales, np.round(scaled)


@wrong("02.3", "the library's own", says="this exercise asks you to write that yourself")
def scales_by_library(x, tile):
    scales = fp8.TileRule("mine", tile, "float32", min_scale=1e-4).scale(np.abs(x.reshape(len(x), -1, tile)).max(-1))
    return scales, x / scales.repeat(tile, axis=1)


# 02.4


@right("02.4", "with struct, token by token")
def pack_tokens(pages, page, layout, slots, codes, powers, rope):
    for token, slot in enumerate(slots.tolist()):
        index, offset = slot // page, slot % page
        values = codes[token].tobytes()
        tail = b"".join(struct.pack("<f", v)[2:4] for v in rope[token])
        if layout == "V3.2":
            parts = {656 * offset: values + struct.pack("<4f", *(2.0 ** int(p) for p in powers[token])) + tail}
        else:
            scales = bytes(int(p) + 127 for p in powers[token]) + b"\0"
            parts = {576 * offset: values + tail, 576 * page + 8 * offset: scales}
        for at, part in parts.items():
            pages[index, at : at + len(part)] = list(part)


@right("02.4", "with views, all tokens at once")
def pack_tokens_with_views(pages, page, layout, slots, codes, powers, rope):
    upper = (np.ascontiguousarray(rope).view(np.uint32) >> 16).astype("<u2").view(np.uint8)
    row, offset = np.divmod(slots, page)

    def store(block, base, step):
        pages[row[:, None], (base + step * offset)[:, None] + np.arange(block.shape[1])] = block

    if layout == "V3.2":
        scales = np.ldexp(np.float32(1), powers).astype("<f4").view(np.uint8)
        store(np.hstack([codes, scales, upper]), 0, 656)
    else:
        store(np.hstack([codes, upper]), 0, 576)
        store(np.pad((powers + 127).astype(np.uint8), ((0, 0), (0, 1))), 576 * page, 8)


def _pack(
    pages, page, layout, slots, codes, powers, rope, *, place=divmod, half=slice(2, 4), order="<", sign=1, bias=127
):
    for token, slot in enumerate(slots.tolist()):
        index, offset = place(slot, page)
        index, offset = index % len(pages), offset % page
        low = b"".join(struct.pack("<f", v)[half] for v in rope[token])
        if layout == "V3.2":
            scales = struct.pack(f"{order}4f", *(2.0 ** (sign * int(p)) for p in powers[token]))
            record = codes[token].tobytes() + scales + low
            pages[index, 656 * offset : 656 * offset + 656] = list(record)
        else:
            pages[index, 576 * offset : 576 * offset + 576] = list(codes[token].tobytes() + low)
            at = 576 * page + 8 * offset
            pages[index, at : at + 8] = [*((sign * int(p) + bias) & 0xFF for p in powers[token]), 0]


@wrong("02.4", "page and offset swapped", says="You swapped page and offset")
def pack_swapped(pages, page, layout, slots, codes, powers, rope):
    _pack(pages, page, layout, slots, codes, powers, rope, place=lambda slot, page: (slot % page, slot // page))


@wrong("02.4", "MODEL1 in one piece", says="packed a MODEL1 token into 584 neighbouring bytes")
def pack_together(pages, page, layout, slots, codes, powers, rope):
    if layout == "V3.2":
        return pack_tokens(pages, page, layout, slots, codes, powers, rope)
    for token, slot in enumerate(slots.tolist()):
        record = codes[token].tobytes() + bytes(int(p) + 127 for p in powers[token]) + b"\0"
        record += b"".join(struct.pack("<f", v)[2:] for v in rope[token])
        at = 584 * (slot % page)
        pages[slot // page, at : at + 584] = list(record)
    return None


@wrong("02.4", "RoPE before the scales", says="You put RoPE too early")
def pack_rope_first(pages, page, layout, slots, codes, powers, rope):
    pack_tokens(pages, page, layout, slots, codes, powers, rope)
    if layout == "V3.2":
        for slot in slots.tolist():
            token = pages[slot // page, 656 * (slot % page) :][:656]
            token[512:656] = np.concatenate([token[528:656], token[512:528]])


@wrong("02.4", "reciprocal scales", says="You stored the reciprocals of the scales")
def pack_reciprocal(pages, page, layout, slots, codes, powers, rope):
    _pack(pages, page, layout, slots, codes, powers, rope, sign=-1)


@wrong("02.4", "E8M0 without bias", says="E8M0 has a bias of 127")
def pack_without_bias(pages, page, layout, slots, codes, powers, rope):
    _pack(pages, page, layout, slots, codes, powers, rope, bias=0)


@wrong("02.4", "lower half of a float32", says="BF16 is the upper half")
def pack_lower_half(pages, page, layout, slots, codes, powers, rope):
    _pack(pages, page, layout, slots, codes, powers, rope, half=slice(0, 2))


@wrong("02.4", "big-endian", says="the wrong way round")
def pack_big_endian(pages, page, layout, slots, codes, powers, rope):
    _pack(pages, page, layout, slots, codes, powers, rope, half=slice(3, 1, -1), order=">")


@wrong("02.4", "pad byte left alone", says="You left the pad byte")
def pack_without_pad(pages, page, layout, slots, codes, powers, rope):
    kept = pages.copy()
    pack_tokens(pages, page, layout, slots, codes, powers, rope)
    if layout == "MODEL1":
        for slot in slots.tolist():
            at = 576 * page + 8 * (slot % page) + 7
            pages[slot // page, at] = kept[slot // page, at]


@wrong("02.4", "clears the page", says="You cleared the whole page")
def pack_clearing(pages, page, layout, slots, codes, powers, rope):
    for i, slot in enumerate(slots.tolist()):
        pages[slot // page] = 0
        one = slice(i, i + 1)
        pack_tokens(pages, page, layout, slots[one], codes[one], powers[one], rope[one])


@wrong("02.4", "a token's scales 7 bytes apart", says="Each token has 8 bytes there")
def pack_seven_apart(pages, page, layout, slots, codes, powers, rope):
    if layout == "V3.2":
        return pack_tokens(pages, page, layout, slots, codes, powers, rope)
    for token, slot in enumerate(slots.tolist()):
        row, offset = pages[slot // page], slot % page
        tail = b"".join(struct.pack("<f", v)[2:] for v in rope[token])
        row[576 * offset : 576 * offset + 576] = list(codes[token].tobytes() + tail)
        row[576 * page + 7 * offset : 576 * page + 7 * offset + 7] = powers[token] + 127
    return None


@wrong("02.4", "into a copy", says="Nothing arrived in pages")
def pack_into_a_copy(pages, page, layout, slots, codes, powers, rope):
    pages = pages.copy()
    pack_tokens(pages, page, layout, slots, codes, powers, rope)
    return pages


def _model1(at):
    """``pack_tokens`` with MODEL1's parts elsewhere: ``at(page, offset)`` gives where values and scales begin."""

    def pack(pages, page, layout, slots, codes, powers, rope):
        if layout == "V3.2":
            return pack_tokens(pages, page, layout, slots, codes, powers, rope)
        for token, slot in enumerate(slots.tolist()):
            row, (begin, apart) = pages[slot // page], at(page, slot % page)
            tail = b"".join(struct.pack("<f", v)[2:] for v in rope[token])
            row[begin : begin + 576] = list(codes[token].tobytes() + tail)
            row[apart : apart + 8] = [*(powers[token] + 127), 0]
        return None

    return pack


pack_584_apart = wrong("02.4", "MODEL1 rows of 584", says="You put MODEL1's values 584 bytes apart")(
    _model1(lambda page, offset: (584 * offset, 576 * page + 8 * offset))
)
pack_scales_last = wrong("02.4", "MODEL1 scales at the end", says="padding comes last")(
    _model1(lambda page, offset: (576 * offset, -(-584 * page // 576) * 576 - 8 * page + 8 * offset))
)


@wrong("02.4", "zero byte first", says="It comes after the seven")
def pack_pad_first(pages, page, layout, slots, codes, powers, rope):
    pack_tokens(pages, page, layout, slots, codes, powers, rope)
    if layout == "MODEL1":
        for slot in slots.tolist():
            scales = pages[slot // page, 576 * page + 8 * (slot % page) :][:8]
            scales[:] = np.roll(scales, 1)


@wrong("02.4", "pages run together", says="You treated the pages as one run of tokens")
def pack_without_padding(pages, page, layout, slots, codes, powers, rope):
    flat = pages.reshape(-1)
    step = (656 if layout == "V3.2" else 584) * page
    for token, slot in enumerate(slots.tolist()):
        one = slice(token, token + 1)
        view = flat[slot // page * step :][None]
        pack_tokens(view, page, layout, slots[one] % page, codes[one], powers[one], rope[one])


@wrong("02.4", "RoPE as float16", says="You stored RoPE as float16")
def pack_float16(pages, page, layout, slots, codes, powers, rope):
    widened = rope.astype(np.float16).view(np.uint16).astype(np.uint32) << 16
    pack_tokens(pages, page, layout, slots, codes, powers, widened.view(np.float32))


@wrong("02.4", "powers as integers", says="You stored V3.2's power as an integer")
def pack_integers(pages, page, layout, slots, codes, powers, rope):
    pack_tokens(pages, page, layout, slots, codes, powers, rope)
    if layout == "V3.2":
        for token, slot in enumerate(slots.tolist()):
            begin = 656 * (slot % page) + 512
            pages[slot // page, begin : begin + 16] = powers[token].astype("<i4").view(np.uint8)


@wrong("02.4", "the library's own", says="this exercise asks you to write that yourself")
def pack_by_library(pages, page, layout, slots, codes, powers, rope):
    chosen = cache.layout(layout)
    tokens = torch.from_numpy(pages).as_strided(
        (len(pages), page, 1, chosen.bytes_per_token),
        (pages.shape[1], chosen.bytes_per_token, chosen.bytes_per_token, 1),
    )
    scales = (2.0**powers).repeat(chosen.tile, axis=1)
    nope = torch.from_numpy(fp8.decode_e4m3(codes) * scales).float()
    cache.append(tokens, torch.from_numpy(slots), nope, torch.from_numpy(rope), chosen)

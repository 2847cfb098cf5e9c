"""Right and wrong answers to assignment 01, each wrong one a mistake somebody makes."""

import cmath
import math

import numpy as np

from mlacademy.grading.answers import right, wrong

# ---------------------------------------------------------------------------------------------------------------- 01.1


@right("01.1", "by listing what is stored")
def listing(heads, d_nope, d_rope, d_v, d_latent, layers, tokens):
    per_head = sum((d_nope, d_rope, d_v))
    one_token = (2 * heads * per_head, 2 * d_latent + 2 * d_rope, d_latent + d_latent // 32 + 2 * d_rope)
    return tuple(layers * tokens * size for size in one_token)


@right("01.1", "by tiles")
def tiles(heads, d_nope, d_rope, d_v, d_latent, layers, tokens):
    n = tokens * layers
    bf16 = 2
    tile = 128 + 4
    return (
        n * bf16 * (heads * (d_nope + d_rope) + heads * d_v),
        n * bf16 * (d_latent + d_rope),
        n * ((d_latent // 128) * tile + bf16 * d_rope),
    )


def changed(heads, d_nope, d_rope, d_v, d_latent, layers, tokens, *, head, latent=None, fp8=None):
    n = layers * tokens
    latent = 2 * (d_latent + d_rope) if latent is None else latent
    fp8 = d_latent + 4 * (d_latent // 128) + 2 * d_rope if fp8 is None else fp8
    return n * 2 * head, n * latent, n * fp8


@wrong("01.1", "no values", says="but not their values")
def no_values(heads, d_nope, d_rope, *rest):
    return changed(heads, d_nope, d_rope, *rest, head=heads * (d_nope + d_rope))


@wrong("01.1", "the published 28 times", says="behind the published 28 times")
def nope_alone(heads, d_nope, *rest):
    return changed(heads, d_nope, *rest, head=heads * d_nope)


@wrong("01.1", "no rotary keys", says="lack their rotary part")
def no_rotary(heads, d_nope, d_rope, d_v, *rest):
    return changed(heads, d_nope, d_rope, d_v, *rest, head=heads * (d_nope + d_v))


@wrong("01.1", "one rotary key for all", says="one rotary key for all heads")
def shared_rotary(heads, d_nope, d_rope, d_v, *rest):
    return changed(heads, d_nope, d_rope, d_v, *rest, head=heads * (d_nope + d_v) + d_rope)


@wrong("01.1", "a latent for each head", says="There is one latent")
def latent_each(heads, d_nope, d_rope, d_v, d_latent, layers, tokens):
    mha, bf16, fp8 = tiles(heads, d_nope, d_rope, d_v, d_latent, layers, tokens)
    return mha, heads * bf16, heads * fp8


@wrong("01.1", "FP8 without scales", says="lacks its scales")
def no_scales(heads, d_nope, d_rope, d_v, d_latent, layers, tokens):
    head = heads * (d_nope + d_rope + d_v)
    return changed(heads, d_nope, d_rope, d_v, d_latent, layers, tokens, head=head, fp8=d_latent + 2 * d_rope)


@wrong("01.1", "rotary key in FP8", says="it stays in BF16")
def rotary_fp8(heads, d_nope, d_rope, d_v, d_latent, layers, tokens):
    head = heads * (d_nope + d_rope + d_v)
    fp8 = d_latent + 4 * (d_latent // 128) + d_rope
    return changed(heads, d_nope, d_rope, d_v, d_latent, layers, tokens, head=head, fp8=fp8)


@wrong("01.1", "a scale for every 64", says="here one scale serves 128")
def scales_of_64(heads, d_nope, d_rope, d_v, d_latent, layers, tokens):
    head = heads * (d_nope + d_rope + d_v)
    fp8 = d_latent + 4 * (d_latent // 64) + 2 * d_rope
    return changed(heads, d_nope, d_rope, d_v, d_latent, layers, tokens, head=head, fp8=fp8)


@wrong("01.1", "one layer only", says="bytes of one layer")
def one_layer(heads, d_nope, d_rope, d_v, d_latent, layers, tokens):
    return tiles(heads, d_nope, d_rope, d_v, d_latent, 1, tokens)


@wrong("01.1", "values", says="values, not bytes")
def counts_values(heads, d_nope, d_rope, d_v, d_latent, layers, tokens):
    mha, bf16, fp8 = tiles(heads, d_nope, d_rope, d_v, d_latent, layers, tokens)
    return mha // 2, bf16 // 2, fp8


@wrong("01.1", "latent without its rotary key", says="latent form lacks its rotary key")
def bare_latent(heads, d_nope, d_rope, d_v, d_latent, layers, tokens):
    return changed(
        heads, d_nope, d_rope, d_v, d_latent, layers, tokens, head=heads * (d_nope + d_rope + d_v), latent=2 * d_latent
    )


@wrong("01.1", "a latent for K and one for V", says="One copy serves both")
def two_latents(heads, d_nope, d_rope, d_v, d_latent, layers, tokens):
    latent, fp8 = 2 * (2 * d_latent + d_rope), 2 * (d_latent + d_latent // 32) + 2 * d_rope
    head = heads * (d_nope + d_rope + d_v)
    return changed(heads, d_nope, d_rope, d_v, d_latent, layers, tokens, head=head, latent=latent, fp8=fp8)


@wrong("01.1", "one byte a scale", says="It is a float32, 4 bytes")
def byte_scales(heads, d_nope, d_rope, d_v, d_latent, layers, tokens):
    head = heads * (d_nope + d_rope + d_v)
    fp8 = d_latent + d_latent // 128 + 2 * d_rope
    return changed(heads, d_nope, d_rope, d_v, d_latent, layers, tokens, head=head, fp8=fp8)


@wrong("01.1", "one scale a token", says="The two BF16 forms are right; the FP8 form is not")
def one_scale(heads, d_nope, d_rope, d_v, d_latent, layers, tokens):
    head = heads * (d_nope + d_rope + d_v)
    return changed(heads, d_nope, d_rope, d_v, d_latent, layers, tokens, head=head, fp8=d_latent + 4 + 2 * d_rope)


@wrong("01.1", "values as wide as keys", says="The two latent forms are right; the multi-head form is not")
def wide_values(heads, d_nope, d_rope, d_v, d_latent, layers, tokens):
    return changed(heads, d_nope, d_rope, d_v, d_latent, layers, tokens, head=2 * heads * (d_nope + d_rope))


@wrong("01.1", "one token only", says="bytes of one token")
def one_token(heads, d_nope, d_rope, d_v, d_latent, layers, tokens):
    return tiles(heads, d_nope, d_rope, d_v, d_latent, layers, 1)


@wrong("01.1", "bits", says="eight times the bytes")
def bits(*numbers):
    return tuple(8 * size for size in tiles(*numbers))


@wrong("01.1", "FP8 before BF16", says="in another order")
def other_order(*numbers):
    mha, bf16, fp8 = tiles(*numbers)
    return mha, fp8, bf16


@wrong("01.1", "floats", says="integer")
def floats(heads, d_nope, d_rope, d_v, d_latent, layers, tokens):
    return tuple(size * 1.0 for size in tiles(heads, d_nope, d_rope, d_v, d_latent, layers, tokens))


@wrong("01.1", "the library's count", says="write that yourself")
def library_count(heads, d_nope, d_rope, d_v, d_latent, layers, tokens):
    from mlacademy import mla
    from mlacademy.config import MLAConfig

    config = MLAConfig(1, layers, heads, None, d_latent, d_nope, d_rope, d_v, 1, 10_000.0, 1e-6)
    sizes = mla.cache_sizes(config)
    return tuple(sizes.model_bytes(tokens, kind) for kind in ("mha", "bf16", "fp8"))


# ---------------------------------------------------------------------------------------------------------------- 01.2


@right("01.2", "with a rotation matrix a pair")
def rotate(x, positions, theta):
    turned = np.zeros_like(x)
    d = x.shape[1]
    for row, position in enumerate(positions):
        for first in range(0, d, 2):
            angle = float(position) / theta ** (first / d)
            matrix = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
            turned[row, first : first + 2] = matrix @ x[row, first : first + 2]
    return turned


@right("01.2", "as complex numbers")
def rotate_complex(x, positions, theta):
    z = np.ascontiguousarray(x).view(np.complex128)
    speeds = np.exp(-math.log(theta) * np.arange(z.shape[1]) / z.shape[1])
    return (z * np.exp(1j * np.asarray(positions)[:, None] * speeds)).view(np.float64)


@right("01.2", "with slices")
def rotate_slices(x, positions, theta):
    a = positions[:, None] * theta ** -np.linspace(0, 1, x.shape[1] // 2, endpoint=False)
    out = np.empty(x.shape)
    out[:, ::2] = x[:, ::2] * np.cos(a) - x[:, 1::2] * np.sin(a)
    out[:, 1::2] = x[:, ::2] * np.sin(a) + x[:, 1::2] * np.cos(a)
    return out


@wrong("01.2", "pairs of halves", says="pairs neighbours")
def rotate_halves(x, positions, theta):
    half = x.shape[1] // 2
    a = positions[:, None] * theta ** (-np.arange(half) / half)
    low, high = x[:, :half], x[:, half:]
    return np.concatenate([low * np.cos(a) - high * np.sin(a), low * np.sin(a) + high * np.cos(a)], axis=1)


@wrong("01.2", "backwards", says="wrong way round")
def rotate_backwards(x, positions, theta):
    return rotate_slices(x, -positions, theta)


@wrong("01.2", "half the exponent", says="the exponent is -2i/d")
def rotate_exponent(x, positions, theta):
    return rotate_slices(x, positions, math.sqrt(theta))


@wrong("01.2", "row numbers", says="token's position, which is in positions")
def rotate_rows(x, positions, theta):
    return rotate_slices(x, np.arange(len(x)), theta)


@wrong("01.2", "one speed", says="same speed")
def rotate_one_speed(x, positions, theta):
    return np.array([[*x_row] for x_row in rotate_slices(x, positions, 1.0)])


@wrong("01.2", "overwrites before use", says="had been overwritten")
def rotate_overwrites(x, positions, theta):
    out = x.copy()
    even, odd = out[:, ::2], out[:, 1::2]
    a = positions[:, None] * theta ** (-np.arange(0, x.shape[1], 2) / x.shape[1])
    even[:] = even * np.cos(a) - odd * np.sin(a)
    odd[:] = even * np.sin(a) + odd * np.cos(a)
    return out


@wrong("01.2", "overwrites the second member first", says="The first member of each pair was computed from the second")
def rotate_overwrites_odd(x, positions, theta):
    out = x.copy()
    a = positions[:, None] * theta ** (-np.arange(0, x.shape[1], 2) / x.shape[1])
    out[:, 1::2] = out[:, ::2] * np.sin(a) + out[:, 1::2] * np.cos(a)
    out[:, ::2] = out[:, ::2] * np.cos(a) - out[:, 1::2] * np.sin(a)
    return out


@wrong("01.2", "elements for pairs in the exponent", says="i numbers the pairs")
def rotate_element_numbers(x, positions, theta):
    return rotate_slices(x, positions, theta**2)


@wrong("01.2", "no minus in the exponent", says="with a minus")
def rotate_growing(x, positions, theta):
    return rotate_slices(x, positions, 1 / theta)


@wrong("01.2", "10,000 written in", says="where the argument theta stands")
def rotate_fixed_theta(x, positions, theta):
    return rotate_slices(x, positions, 10_000.0)


@wrong("01.2", "first members in front", says="stand in the wrong places")
def rotate_sorted(x, positions, theta):
    turned = rotate_slices(x, positions, theta)
    return np.hstack([turned[:, ::2], turned[:, 1::2]])


@wrong("01.2", "a list of lists", says="expected an array of shape [1, 2]")
def rotate_list(x, positions, theta):
    return rotate_slices(x, positions, theta).tolist()


@wrong("01.2", "float32 at the end", says="Keep float64 throughout")
def rotate_rounded(x, positions, theta):
    return rotate_slices(x, positions, theta).astype(np.float32)


@wrong("01.2", "in place", says="changed")
def rotate_in_place(x, positions, theta):
    x[:] = rotate_slices(x, positions, theta)
    return x


@wrong("01.2", "angle in float32", says="computed in float32")
def rotate_float32(x, positions, theta):
    speeds = (theta ** (-np.arange(0, x.shape[1], 2) / x.shape[1])).astype(np.float32)
    a = positions[:, None].astype(np.float32) * speeds
    z = (x[:, ::2] + 1j * x[:, 1::2]) * np.exp(1j * a)
    return np.stack([z.real, z.imag], axis=-1).reshape(x.shape)


@wrong("01.2", "the library's rope", says="write that yourself")
def rotate_library(x, positions, theta):
    import torch

    from mlacademy import mla

    return mla.rope(torch.from_numpy(x), torch.from_numpy(positions), theta).numpy()


# ---------------------------------------------------------------------------------------------------------------- 01.3


@right("01.3", "row vector times matrix")
def absorb_matmul(q_nope, q_rope, k_up):
    return np.hstack([(q_nope[:, None, :] @ k_up)[:, 0], q_rope])


@right("01.3", "head by head")
def absorb_loop(q_nope, q_rope, k_up):
    q = np.empty((k_up.shape[0], k_up.shape[2] + q_rope.shape[1]))
    for h, matrix in enumerate(k_up):
        q[h, : k_up.shape[2]] = sum(q_nope[h, i] * matrix[i] for i in range(len(matrix)))
        q[h, k_up.shape[2] :] = q_rope[h]
    return q


@wrong("01.3", "rotary part first", says="rotary part stands in front")
def absorb_rope_first(q_nope, q_rope, k_up):
    return np.hstack([q_rope, np.einsum("hn,hnc->hc", q_nope, k_up)])


@wrong("01.3", "one matrix for all heads", says="matrix of head 0")
def absorb_first(q_nope, q_rope, k_up):
    return np.hstack([q_nope @ k_up[0], q_rope])


@wrong("01.3", "heads summed", says="heads were added together")
def absorb_summed(q_nope, q_rope, k_up):
    total = np.einsum("hn,hnc->c", q_nope, k_up)
    return np.hstack([np.tile(total, (len(q_nope), 1)), q_rope])


@wrong("01.3", "no rotary part", says="rotary part of the query is missing")
def absorb_nope_only(q_nope, q_rope, k_up):
    return np.einsum("hn,hnc->hc", q_nope, k_up)


@wrong("01.3", "not transposed", says="where its transpose is needed")
def absorb_not_transposed(q_nope, q_rope, k_up):
    if k_up.shape[1] != k_up.shape[2]:
        return absorb_matmul(q_nope, q_rope, k_up)  # where it would not fit, numpy had complained and was obeyed
    return np.hstack([(k_up @ q_nope[:, :, None])[:, :, 0], q_rope])


@wrong("01.3", "every head with every matrix", says="h · h products")
def absorb_broadcast(q_nope, q_rope, k_up):
    return q_nope @ k_up


@wrong("01.3", "the library's absorb", says="write that yourself")
def absorb_library(q_nope, q_rope, k_up):
    from types import SimpleNamespace

    import torch

    from mlacademy import mla

    absorbed = mla.absorb(torch.from_numpy(q_nope)[None, None], SimpleNamespace(k_up=torch.from_numpy(k_up)))
    return np.hstack([absorbed[0, 0].numpy(), q_rope])


# ---------------------------------------------------------------------------------------------------------------- 01.4


def softmax(scores):
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def new_row(new, d_latent, kv_norm, position, theta):
    c = new[:d_latent]
    k = rotate_slices(new[None, d_latent:], np.array([position]), theta)[0]
    return np.hstack([c / math.sqrt(c @ c / d_latent + 1e-6) * kv_norm, k])


@right("01.4", "matrices of all heads")
def decode_step(q_nope, q_rope, new, cache, position, k_up, v_up, kv_norm, theta, scale):
    d_latent = k_up.shape[-1]
    cache = np.vstack([cache, new_row(new, d_latent, kv_norm, position, theta)])
    q = absorb_matmul(q_nope, rotate_slices(q_rope, np.full(len(q_rope), position), theta), k_up)
    mixed = softmax(scale * (q @ cache.T)) @ cache[:, :d_latent]
    return cache, np.squeeze(v_up @ mixed[:, :, None], -1)


@right("01.4", "naively, by expanding keys and values")
def decode_naive(q_nope, q_rope, new, cache, position, k_up, v_up, kv_norm, theta, scale):
    d_latent = k_up.shape[2]
    cache = np.concatenate([cache, new_row(new, d_latent, kv_norm, position, theta)[None]])
    out = []
    for h in range(len(k_up)):
        keys = np.hstack([cache[:, :d_latent] @ k_up[h].T, cache[:, d_latent:]])
        turned = [
            cmath.rect(1, position * theta ** (-i / q_rope.shape[1])) * complex(*q_rope[h, i : i + 2])
            for i in range(0, q_rope.shape[1], 2)
        ]
        q = [*q_nope[h], *(part for z in turned for part in (z.real, z.imag))]
        out.append(softmax(scale * keys @ q) @ (cache[:, :d_latent] @ v_up[h].T))
    return cache, np.array(out)


def altered(q_nope, q_rope, new, cache, position, k_up, v_up, kv_norm, theta, scale, *, row=None, **options):
    """The right step with one line changed."""
    d_latent = k_up.shape[2]
    row = new_row(new, d_latent, kv_norm, position, theta) if row is None else row
    stored = np.vstack([cache, row])
    seen = options.get("seen", stored)
    turned = q_rope if options.get("raw_query") else rotate_slices(q_rope, np.full(len(q_rope), position), theta)
    scores = absorb_matmul(q_nope, turned, k_up) @ seen.T * scale
    p = softmax(scores.T).T if options.get("over_heads") else softmax(scores)
    values = seen[:, -d_latent:] if options.get("last") else seen[:, :d_latent]
    return stored, np.einsum("hc,hvc->hv", p @ values, v_up)


@wrong("01.4", "raw latent", says="stored as it came")
def step_raw(q_nope, q_rope, new, cache, position, k_up, v_up, kv_norm, theta, scale):
    row = new_row(new, k_up.shape[2], kv_norm, position, theta)
    row[: k_up.shape[2]] = new[: k_up.shape[2]]
    return altered(q_nope, q_rope, new, cache, position, k_up, v_up, kv_norm, theta, scale, row=row)


@wrong("01.4", "norm without its weight", says="not multiplied by kv_norm")
def step_no_weight(q_nope, q_rope, new, cache, position, k_up, v_up, kv_norm, theta, scale):
    row = new_row(new, k_up.shape[2], np.ones_like(kv_norm), position, theta)
    return altered(q_nope, q_rope, new, cache, position, k_up, v_up, kv_norm, theta, scale, row=row)


@wrong("01.4", "norm over the whole row", says="belongs to the latent alone")
def step_norm_row(q_nope, q_rope, new, cache, position, k_up, v_up, kv_norm, theta, scale):
    d = k_up.shape[2]
    row = new_row(new, d, kv_norm, position, theta)
    row[:d] = new[:d] / np.sqrt((new**2).mean() + 1e-6) * kv_norm
    return altered(q_nope, q_rope, new, cache, position, k_up, v_up, kv_norm, theta, scale, row=row)


@wrong("01.4", "does not see itself", says="did not attend to itself")
def step_blind(q_nope, q_rope, new, cache, position, k_up, v_up, kv_norm, theta, scale):
    if not len(cache):
        return decode_step(q_nope, q_rope, new, cache, position, k_up, v_up, kv_norm, theta, scale)
    return altered(q_nope, q_rope, new, cache, position, k_up, v_up, kv_norm, theta, scale, seen=cache)


@wrong("01.4", "key not turned", says="stored without being turned")
def step_key_raw(q_nope, q_rope, new, cache, position, k_up, v_up, kv_norm, theta, scale):
    row = new_row(new, k_up.shape[2], kv_norm, position, theta)
    row[k_up.shape[2] :] = new[k_up.shape[2] :]
    return altered(q_nope, q_rope, new, cache, position, k_up, v_up, kv_norm, theta, scale, row=row)


@wrong("01.4", "query not turned", says="rotary part was not turned")
def step_query_raw(*inputs):
    return altered(*inputs, raw_query=True)


@wrong("01.4", "cache turned again", says="turned a second time")
def step_turned_again(q_nope, q_rope, new, cache, position, k_up, v_up, kv_norm, theta, scale):
    d = k_up.shape[2]
    again = np.hstack([cache[:, :d], rotate_slices(cache[:, d:], np.full(len(cache), position), theta)])
    seen = np.vstack([again, new_row(new, d, kv_norm, position, theta)])
    return altered(q_nope, q_rope, new, cache, position, k_up, v_up, kv_norm, theta, scale, seen=seen)


@wrong("01.4", "scale of the cached width", says="width of the cached key")
def step_default_scale(*inputs):
    return altered(*inputs[:-1], 1 / math.sqrt(inputs[3].shape[1]))


@wrong("01.4", "no scale", says="not multiplied by scale")
def step_no_scale(*inputs):
    return altered(*inputs[:-1], 1.0)


@wrong("01.4", "softmax over heads", says="weights of one head over all tokens")
def step_over_heads(*inputs):
    return altered(*inputs, over_heads=True)


@wrong("01.4", "last values", says="V is its first d_latent")
def step_last(*inputs):
    return altered(*inputs, last=True)


@wrong("01.4", "no maximum subtracted", says="exp overflowed")
def step_overflow(q_nope, q_rope, new, cache, position, k_up, v_up, kv_norm, theta, scale):
    d = k_up.shape[2]
    cache = np.vstack([cache, new_row(new, d, kv_norm, position, theta)])
    q = absorb_matmul(q_nope, rotate_slices(q_rope, np.full(len(q_rope), position), theta), k_up)
    with np.errstate(all="ignore"):
        e = np.exp(scale * (q @ cache.T))
        p = e / e.sum(axis=1, keepdims=True)
    return cache, np.einsum("hc,hvc->hv", p @ cache[:, :d], v_up)


def latent_row(new, d_latent, c, position, theta):
    return np.hstack([c, rotate_slices(new[None, d_latent:], np.array([position]), theta)[0]])


@wrong("01.4", "sum of squares", says="RMSNorm takes their mean")
def step_sum(q_nope, q_rope, new, cache, position, k_up, v_up, kv_norm, theta, scale):
    c = new[: k_up.shape[2]]
    row = latent_row(new, len(c), c / np.sqrt(c @ c + 1e-6) * kv_norm, position, theta)
    return altered(q_nope, q_rope, new, cache, position, k_up, v_up, kv_norm, theta, scale, row=row)


@wrong("01.4", "epsilon outside the root", says="The epsilon stands under the root")
def step_epsilon(q_nope, q_rope, new, cache, position, k_up, v_up, kv_norm, theta, scale):
    c = new[: k_up.shape[2]]
    row = latent_row(new, len(c), c / (np.sqrt(np.mean(c * c)) + 1e-6) * kv_norm, position, theta)
    return altered(q_nope, q_rope, new, cache, position, k_up, v_up, kv_norm, theta, scale, row=row)


@wrong("01.4", "layer norm", says="only the last row's latent is wrong")
def step_layer_norm(q_nope, q_rope, new, cache, position, k_up, v_up, kv_norm, theta, scale):
    c = new[: k_up.shape[2]]
    row = latent_row(new, len(c), (c - c.mean()) / np.sqrt(c.var() + 1e-6) * kv_norm, position, theta)
    return altered(q_nope, q_rope, new, cache, position, k_up, v_up, kv_norm, theta, scale, row=row)


@wrong("01.4", "next position", says="only the last row's rotary key is wrong")
def step_next(q_nope, q_rope, new, cache, position, k_up, v_up, kv_norm, theta, scale):
    row = new_row(new, k_up.shape[2], kv_norm, position + 1, theta)
    return altered(q_nope, q_rope, new, cache, position, k_up, v_up, kv_norm, theta, scale, row=row)


@wrong("01.4", "row count for position", says="You turned by the number of cached rows")
def step_row_count(q_nope, q_rope, new, cache, position, *rest):
    return decode_step(q_nope, q_rope, new, cache, len(cache), *rest)


@wrong("01.4", "queries turned by their head", says="Head h's query was turned by h")
def step_turned_by_head(q_nope, q_rope, new, cache, position, k_up, v_up, kv_norm, theta, scale):
    turned = rotate_slices(q_rope, np.arange(len(q_rope)), theta)
    return altered(q_nope, turned, new, cache, position, k_up, v_up, kv_norm, theta, scale, raw_query=True)


@wrong("01.4", "scale behind softmax", says="before the exponential")
def step_late_scale(*inputs):
    stored, out = altered(*inputs[:-1], 1.0)
    return stored, inputs[-1] * out


@wrong("01.4", "weights not divided", says="the division by their sum is missing")
def step_undivided(q_nope, q_rope, new, cache, position, k_up, v_up, kv_norm, theta, scale):
    d = k_up.shape[2]
    cache = np.vstack([cache, new_row(new, d, kv_norm, position, theta)])
    q = absorb_matmul(q_nope, rotate_slices(q_rope, np.full(len(q_rope), position), theta), k_up)
    scores = scale * (q @ cache.T)
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    return cache, np.einsum("hc,hvc->hv", e @ cache[:, :d], v_up)


@wrong("01.4", "one maximum for all heads", says="each head's own largest score")
def step_one_maximum(q_nope, q_rope, new, cache, position, k_up, v_up, kv_norm, theta, scale):
    d = k_up.shape[2]
    cache = np.vstack([cache, new_row(new, d, kv_norm, position, theta)])
    q = absorb_matmul(q_nope, rotate_slices(q_rope, np.full(len(q_rope), position), theta), k_up)
    scores = scale * (q @ cache.T)
    with np.errstate(invalid="ignore"):
        e = np.exp(scores - scores.max())
        p = e / e.sum(axis=1, keepdims=True)
    return cache, np.einsum("hc,hvc->hv", p @ cache[:, :d], v_up)


@wrong("01.4", "new row in front", says="stands in front of the cache")
def step_row_in_front(*inputs):
    stored, out = decode_step(*inputs)
    return np.roll(stored, 1, axis=0), out


@wrong("01.4", "rotary key in front", says="has its rotary key in front")
def step_rotary_in_front(*inputs):
    stored, out = decode_step(*inputs)
    return np.vstack([stored[:-1], np.roll(stored[-1], inputs[1].shape[1])]), out


@wrong("01.4", "cache not extended", says="new_cache is the cache as it came")
def step_old_cache(*inputs):
    return inputs[3], decode_step(*inputs)[1]


@wrong("01.4", "latents returned", says="Its v_up turns that into d_v values")
def step_latents(q_nope, q_rope, new, cache, position, k_up, v_up, *rest):
    identity = np.tile(np.eye(k_up.shape[2]), (len(k_up), 1, 1))
    return decode_step(q_nope, q_rope, new, cache, position, k_up, identity, *rest)


@wrong("01.4", "scores from the latents alone", says="new_cache is right")
def step_latent_scores(q_nope, q_rope, *rest):
    stored, _ = decode_step(q_nope, q_rope, *rest)
    return stored, decode_step(q_nope, np.zeros_like(q_rope), *rest)[1]


@wrong("01.4", "lists", says="expected an array of shape [4, 9]")
def step_lists(*inputs):
    return tuple(array.tolist() for array in decode_step(*inputs))


@wrong("01.4", "only the output", says="one result")
def step_output_only(*inputs):
    return decode_step(*inputs)[1]


@wrong("01.4", "results exchanged", says="shape")
def step_exchanged(*inputs):
    return decode_step(*inputs)[::-1]


@wrong("01.4", "the library's rope inside", says="write that yourself")
def step_library(q_nope, q_rope, new, cache, position, k_up, v_up, kv_norm, theta, scale):
    import torch

    from mlacademy import mla

    at = torch.tensor([position])
    mla.rope(torch.from_numpy(new[None, k_up.shape[2] :]), at, theta)
    return decode_step(q_nope, q_rope, new, cache, position, k_up, v_up, kv_norm, theta, scale)

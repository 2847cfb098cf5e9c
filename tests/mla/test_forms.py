"""The two forms of latent attention: equal to each other, and to plain loops over heads in NumPy."""

import cmath
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlacademy import mla
from mlacademy.config import deepseek_v32

EPS = 2.0**-52


def small(h=3, hidden=11, q_rank=7, rank=5, nope=3, rope=4, v=2, **more):
    return replace(
        deepseek_v32(),
        num_attention_heads=h,
        hidden_size=hidden,
        q_lora_rank=q_rank,
        kv_lora_rank=rank,
        qk_nope_head_dim=nope,
        qk_rope_head_dim=rope,
        v_head_dim=v,
        **more,
    )


def states(config, b, s, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(b, s, config.hidden_size, dtype=torch.float64, generator=generator)


def by_loops(hidden, positions, key_hidden, key_positions, w):
    """The layer from its definition, one batch row, token and head at a time. NumPy and Python numbers only."""
    config = w.config
    frequencies = mla.rope_frequencies(config).tolist()  # tested on its own against plain math

    def norm(x, weight):
        return x / np.sqrt(np.mean(x * x) + config.rms_norm_eps) * weight.numpy()

    def turn(x, position):
        out, d = np.array(x), len(x)
        for i, frequency in enumerate(frequencies):
            a, b = (2 * i, 2 * i + 1) if config.rope_interleave else (i, i + d // 2)
            z = complex(x[a], x[b]) * cmath.exp(1j * int(position) * frequency)
            out[a], out[b] = z.real, z.imag
        return out

    def one(x, position, keys, key_positions):
        if w.q_down is not None:
            x = norm(w.q_down.numpy() @ x, w.q_norm)
        total = np.zeros(config.hidden_size)
        for h in range(config.num_attention_heads):
            q = w.q_up[h].numpy() @ x
            q = np.concatenate([q[: config.qk_nope_head_dim], turn(q[config.qk_nope_head_dim :], position)])
            logits, values = [], []
            for key, at in zip(keys, key_positions, strict=True):
                if at > position:
                    continue
                both = w.kv_down.numpy() @ key
                latent = norm(both[: config.kv_lora_rank], w.kv_norm)
                k = np.concatenate([w.k_up[h].numpy() @ latent, turn(both[config.kv_lora_rank :], at)])
                logits.append(config.softmax_scale * float(q @ k))
                values.append(w.v_up[h].numpy() @ latent)
            if logits:
                p = np.exp(np.array(logits) - max(logits))
                total += w.out[:, h].numpy() @ (p / p.sum() @ np.array(values))
        return total

    rows = []
    for b in range(hidden.shape[0]):
        keys, at_keys = key_hidden[b].numpy(), key_positions[b].tolist()
        tokens = zip(hidden[b].numpy(), positions[b].tolist(), strict=True)
        rows.append([one(x, at, keys, at_keys) for x, at in tokens])
    return np.array(rows)


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_both_forms_equal_plain_loops_at_small_odd_sizes(data):
    def draw(low, high):
        return data.draw(st.integers(low, high))

    config = small(
        h=draw(1, 4),
        hidden=draw(1, 9),
        q_rank=data.draw(st.none() | st.integers(1, 5)),
        rank=draw(1, 7),
        nope=draw(1, 5),
        rope=2 * draw(1, 3),
        v=draw(1, 5),
        rope_interleave=data.draw(st.booleans()),
    )
    b, s_q, s_kv, seed = draw(1, 3), draw(1, 3), draw(1, 6), draw(0, 10_000)
    w = mla.random_weights(config, seed)
    keys, hidden = states(config, b, s_kv, seed + 1), states(config, b, s_q, seed + 2)
    key_positions = torch.tensor([[data.draw(st.integers(0, 200)) for _ in range(s_kv)] for _ in range(b)])
    positions = torch.tensor([[data.draw(st.integers(0, 200)) for _ in range(s_q)] for _ in range(b)])
    kv = mla.compress(keys, w, key_positions)
    want = by_loops(hidden, positions, keys, key_positions, w)
    # Sums of at most 20 terms of size below 10, five in a row, and angles up to 200 rad: 1e-11 is about 40 times that.
    for form in (mla.naive_attention, mla.absorbed_attention):
        np.testing.assert_allclose(form(hidden, kv, w, positions).numpy(), want, rtol=1e-10, atol=1e-11)


@pytest.fixture(scope="module")
def real():
    """One layer of DeepSeek-V3.2's real sizes: 187 million random weights, 12 tokens of two requests."""
    config = deepseek_v32()
    weights = mla.random_weights(config, seed=0)
    hidden = states(config, 2, 12, seed=1)
    positions = torch.stack([torch.arange(12), torch.arange(12) + 100_000])
    return weights, hidden, positions, mla.compress(hidden, weights, positions)


# Two ways to sum the same products: the longest sums have 7,168 and 16,384 terms, their rounding errors grow with the
# square root, and each layer of the computation has values of size about 1: sqrt(16384) · eps = 3e-14, times ten.
REAL_TOL = 10 * 128 * EPS


def test_both_forms_are_equal_at_the_real_sizes(real):
    weights, hidden, positions, kv = real
    new, at = hidden[:, -2:], positions[:, -2:]
    naive = mla.naive_attention(new, kv, weights, at)
    absorbed = mla.absorbed_attention(new, kv, weights, at)
    assert naive.shape == (2, 2, 7168)
    assert naive.std() > 0.3
    assert float((naive - absorbed).abs().max()) < REAL_TOL


def test_shapes_at_the_real_sizes(real):
    weights, hidden, positions, kv = real
    assert (kv.latent.shape, kv.rope_key.shape, kv.joined.shape) == ((2, 12, 512), (2, 12, 64), (2, 12, 576))
    q_nope, q_rope = mla.queries(hidden[:, -1:], weights, positions[:, -1:])
    assert (q_nope.shape, q_rope.shape) == ((2, 1, 128, 128), (2, 1, 128, 64))
    assert mla.absorb(q_nope, weights).shape == (2, 1, 128, 512)


def test_real_heads_match_one_head_computed_alone(real):
    weights, hidden, positions, kv = real
    q_nope, q_rope = mla.queries(hidden[:, -1:], weights, positions[:, -1:])
    got = mla.absorbed_heads(q_nope, q_rope, kv, weights, positions[:, -1:])
    for h in (0, 63, 127):
        k = np.concatenate([kv.latent[1].numpy() @ weights.k_up[h].numpy().T, kv.rope_key[1].numpy()], axis=1)
        q = np.concatenate([q_nope[1, 0, h].numpy(), q_rope[1, 0, h].numpy()])
        logits = 0.13523377886088 * (k @ q)
        p = np.exp(logits - logits.max())
        want = p / p.sum() @ (kv.latent[1].numpy() @ weights.v_up[h].numpy().T)
        np.testing.assert_allclose(got[1, 0, h].numpy(), want, atol=REAL_TOL, rtol=0)


def test_the_parameter_count_of_a_real_layer(real):
    weights = real[0]
    matrices = [weights.q_down, weights.q_up, weights.kv_down, weights.k_up, weights.v_up, weights.out]
    assert sum(m.numel() for m in matrices) == (
        7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168
    )


def test_stored_latents_have_unit_size_before_their_weight():
    config = small(rms_norm_eps=1e-12)
    w = mla.random_weights(config, 3)
    kv = mla.compress(states(config, 2, 5, 4), w, torch.arange(5).expand(2, 5))
    mean_square = (kv.latent / w.kv_norm).square().mean(-1)
    torch.testing.assert_close(mean_square, torch.ones(2, 5, dtype=torch.float64), atol=1e-9, rtol=0)


def test_a_query_before_every_key_gives_zero():
    config = small()
    w = mla.random_weights(config, 0)
    kv = mla.compress(states(config, 1, 3, 1), w, torch.tensor([[5, 6, 7]]))
    for form in (mla.naive_attention, mla.absorbed_attention):
        out = form(states(config, 1, 2, 2), kv, w, torch.tensor([[4, 5]]))
        assert torch.equal(out[0, 0], torch.zeros(config.hidden_size, dtype=torch.float64))
        assert bool((out[0, 1] != 0).any())


def test_one_visible_key_returns_its_value():
    config = small()
    w = mla.random_weights(config, 0)
    kv = mla.compress(states(config, 1, 1, 1), w, torch.tensor([[0]]))
    q = mla.queries(states(config, 1, 1, 2), w, torch.tensor([[0]]))
    want = torch.einsum("c,hdc->hd", kv.latent[0, 0], w.v_up)
    torch.testing.assert_close(mla.absorbed_heads(*q, kv, w, torch.tensor([[0]]))[0, 0], want, atol=1e-14, rtol=0)


def test_the_scale_is_the_models_and_can_be_replaced():
    config = small()
    w = mla.random_weights(config, 0)
    hidden, positions = states(config, 1, 4, 1), torch.arange(4).unsqueeze(0)
    kv = mla.compress(hidden, w, positions)
    default = mla.naive_attention(hidden, kv, w, positions)
    assert torch.equal(default, mla.naive_attention(hidden, kv, w, positions, softmax_scale=config.softmax_scale))
    assert not torch.allclose(default, mla.naive_attention(hidden, kv, w, positions, softmax_scale=config.d_qk**-0.5))


def test_the_same_seed_gives_the_same_weights():
    config = small()
    assert torch.equal(mla.random_weights(config, 5).out, mla.random_weights(config, 5).out)
    assert not torch.equal(mla.random_weights(config, 5).out, mla.random_weights(config, 6).out)
    assert mla.random_weights(config, 5, torch.float32).out.dtype == torch.float32


def test_wrong_arguments_are_named():
    config = small()
    w = mla.random_weights(config, 0)
    good, positions = states(config, 1, 2, 0), torch.zeros(1, 2, dtype=torch.int64)
    with pytest.raises(TypeError, match=r"hidden must have the weights' dtype torch.float64: got torch.float32"):
        mla.compress(good.float(), w, positions)
    with pytest.raises(ValueError, match=r"hidden must have shape \[b, s, 11\]: got \(2, 11\)"):
        mla.compress(good[0], w, positions)
    with pytest.raises(ValueError, match=r"positions must have shape \(1, 2\), one a token: got \(2,\)"):
        mla.queries(good, w, positions[0])

"""Nothing is silently wrong: changed lengths, slots out of range, and what an append leaves out are noticed."""

from __future__ import annotations

import contextlib

import pytest
import torch
from decode_inputs import Inputs, decode_inputs
from hypothesis import given, settings
from hypothesis import strategies as st

from mlacademy import cache, ops

on_each_backend = pytest.mark.parametrize("backend", ["oracle", "emulator"])


def on(backend: str) -> contextlib.AbstractContextManager[object]:
    return ops.on("emulator") if backend == "emulator" else contextlib.nullcontext()


def with_lengths(h_q: int, main: list[int], extra: list[int] | None = None) -> Inputs:
    """A call with one request a length; the lists are 128 and 64 wide."""
    b = len(main)
    options = {"topk_length": torch.tensor(main, dtype=torch.int32)}
    if extra is not None:
        other = decode_inputs(cache.V32, b=b, topk=64, page=5, pages=6, seed=3)
        options |= {"extra_kv_cache": other.kv_cache, "extra_indices": other.indices}
        options["extra_topk_length"] = torch.tensor(extra, dtype=torch.int32)
    return decode_inputs(cache.V32, b=b, h_q=h_q, topk=128, page=16, pages=5, seed=2, **options)


def schedule_of(inputs: Inputs, sms: int = 132) -> ops.Metadata:
    lengths = {name: inputs.options.get(name) for name in ("topk_length", "extra_topk_length")}
    extra = inputs.options.get("extra_indices")
    width = None if extra is None else extra.shape[-1]
    b, s_q, h_q, _ = inputs.q.shape
    return ops.schedule(b, inputs.indices.shape[-1], s_q=s_q, h_q=h_q, sms=sms, extra_topk=width, **lengths)


@settings(max_examples=8)
@given(
    data=st.data(),
    b=st.integers(1, 4),
    h_q=st.sampled_from([16, 64, 128]),
    sms=st.sampled_from([1, 6, 132]),
    extra=st.booleans(),
)
def test_any_changed_length_poisons_every_output(data: st.DataObject, b: int, h_q: int, sms: int, extra: bool) -> None:
    main = data.draw(st.lists(st.integers(0, 128), min_size=b, max_size=b))
    other = data.draw(st.lists(st.integers(0, 64), min_size=b, max_size=b)) if extra else None
    inputs = with_lengths(h_q, main, other)
    name = data.draw(st.sampled_from(["topk_length", "extra_topk_length"])) if extra else "topk_length"
    request = data.draw(st.integers(0, b - 1))
    former = int(inputs.options[name][request])
    value = data.draw(st.integers(0, inputs.indices.shape[-1]).filter(lambda value: value != former))
    with ops.on("emulator"):
        metadata = schedule_of(inputs, sms)
        out, lse = inputs.decode(metadata=metadata)
        ops.check()
        inputs.compare(out, lse, *_by_oracle(inputs))
        inputs.options[name][request] = value
        out, lse = inputs.decode(metadata=metadata)
        assert out.isnan().all()
        assert lse.isnan().all()
        with pytest.raises(ops.StaleMetadata, match=rf"^{name}\[{request}\] is {value}, .* made for {former}, so"):
            ops.check()
        ops.check()  # once is enough


def _by_oracle(inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
    from mlacademy.ops import arguments, reference

    defaults = dict.fromkeys(arguments.DecodeTensors._fields)
    given = {"q": inputs.q, "kv_cache": inputs.kv_cache, "indices": inputs.indices, **inputs.options}
    tensors = arguments.DecodeTensors(**(defaults | given))
    return reference.sparse_decode(arguments.decode_shape(inputs.layout, tensors), tensors, 0.1352, None)


@on_each_backend
def test_lengths_that_changed_places_are_noticed(backend: str) -> None:
    inputs = with_lengths(64, [128, 70, 3])
    with on(backend):
        metadata = schedule_of(inputs)
        inputs.options["topk_length"].copy_(torch.tensor([70, 128, 3]))
        out, _ = inputs.decode(metadata=metadata)
    assert out.isnan().all()
    with pytest.raises(ops.StaleMetadata, match=r"topk_length\[[01]\]"):
        ops.check()


@on_each_backend
def test_without_metadata_lengths_may_change(backend: str) -> None:
    inputs = with_lengths(64, [128, 70])
    with on(backend):
        inputs.decode()
        inputs.options["topk_length"][0] = 1
        out, lse = inputs.decode()
    assert not out.isnan().any()
    assert not lse.isnan().any()
    ops.check()


@on_each_backend
def test_an_index_out_of_range_is_a_hole_unless_checked(backend: str) -> None:
    inputs = decode_inputs(cache.V32, b=2, s_q=2, topk=64, page=8, pages=9)
    holed = Inputs(inputs.layout, inputs.q, inputs.kv_cache, inputs.indices.clone())
    inputs.indices[1, 0, 13], inputs.indices[0, 1, 63] = 72, -2
    holed.indices[1, 0, 13] = holed.indices[0, 1, 63] = -1
    with on(backend):
        assert torch.equal(inputs.decode()[0], holed.decode()[0])
        with ops.checked():
            assert torch.equal(holed.decode()[0], holed.decode()[0])
        said = r"indices must be [-−]1 \(a hole\) or .*indices\[(1, 0, 13|0, 1, 63)\] is"
        with pytest.raises(ValueError, match=said), ops.checked():
            inputs.decode()
        inputs.decode()
    ops.check()


def test_the_checked_mode_looks_at_the_second_list_too() -> None:
    inputs = with_lengths(64, [128, 70], [64, 9])
    lists = inputs.options["extra_indices"]
    lists[1, 0, 9] = 2**31 - 1  # beyond its length, where anything may stand
    with ops.on("emulator"), ops.checked():
        inputs.decode()
        lists[1, 0, 8] = 30
        with pytest.raises(
            ops.SlotOutOfRange, match=r"^extra_indices must be .* 0 to 29: extra_indices\[1, 0, 8\] is 30"
        ):
            inputs.decode()


@on_each_backend
@pytest.mark.parametrize("length", [-1, 129])
def test_a_length_out_of_range_is_the_nearest_one_unless_checked(backend: str, length: int) -> None:
    inputs, nearest = with_lengths(64, [length, 70]), with_lengths(64, [max(min(length, 128), 0), 70])
    with on(backend):
        assert torch.equal(inputs.decode()[0], nearest.decode()[0])
        with pytest.raises(ValueError, match=rf"topk_length must (be|lie in) 0 (to|…) 128.* {length}"), ops.checked():
            inputs.decode()


def test_an_append_says_what_it_left_out() -> None:
    kv = cache.new_cache(cache.V32, 2, 8)
    nope, rope = torch.ones(3, 512, dtype=torch.bfloat16), torch.ones(3, 64, dtype=torch.bfloat16)
    with ops.on("emulator"):
        ops.cache_append(kv, torch.tensor([3, 16, -1]), nope, rope)
        with pytest.raises(ops.SlotOutOfRange, match=r"slots must be -1 .* 1 did not, and their tokens were left out"):
            ops.check()
        nope[2, 5] = torch.inf
        ops.cache_append(kv, torch.tensor([3, 4, 5]), nope, rope)
        with pytest.raises(ValueError, match="nope and rope must be finite: 1 tokens were not"):
            ops.check()
    ops.check("cpu")


@on_each_backend
def test_no_tokens_are_appended_without_a_word(backend: str) -> None:
    kv = cache.new_cache(cache.V32, 2, 8)
    none = torch.zeros(0, 512, dtype=torch.bfloat16), torch.zeros(0, 64, dtype=torch.bfloat16)
    with on(backend):
        ops.cache_append(kv, torch.zeros(0, dtype=torch.int64), *none)
    assert not kv.any()

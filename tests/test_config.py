"""MLAConfig: real files are read, wrong ones are refused in a sentence that names the field."""

import copy
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlacademy import config
from mlacademy.config import MLAConfig, YarnScaling, deepseek_v3, deepseek_v32

MODELS = Path(config.__file__).parent / "models"

# What the published config.json of DeepSeek-V3.2 says about attention, and a few fields beside that.
PUBLISHED = {
    "architectures": ["DeepseekV32ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "hidden_size": 7168,
    "index_head_dim": 128,
    "index_n_heads": 64,
    "index_topk": 2048,
    "kv_lora_rank": 512,
    "max_position_embeddings": 163840,
    "model_type": "deepseek_v32",
    "n_routed_experts": 256,
    "num_attention_heads": 128,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "quantization_config": {"fmt": "e4m3", "scale_fmt": "ue8m0", "weight_block_size": [128, 128]},
    "rms_norm_eps": 1e-06,
    "rope_scaling": {
        "beta_fast": 32,
        "beta_slow": 1,
        "factor": 40,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 4096,
        "type": "yarn",
    },
    "rope_theta": 10000,
    "v_head_dim": 128,
    "vocab_size": 129280,
}
IGNORED = (
    "architectures",
    "attention_dropout",
    "model_type",
    "n_routed_experts",
    "quantization_config",
    "vocab_size",
)


def write(tmp_path, document):
    path = tmp_path / "config.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return path


def changed(**values):
    document = copy.deepcopy(PUBLISHED)
    for name, value in values.items():
        if value is ...:
            del document[name]
        else:
            document[name] = value
    return document


def scaling(**values):
    part = changed(rope_scaling=PUBLISHED["rope_scaling"])["rope_scaling"] | values
    return changed(rope_scaling={name: value for name, value in part.items() if value is not ...})


def test_a_published_file_gives_the_shipped_configuration(tmp_path):
    read = MLAConfig.from_json(write(tmp_path, PUBLISHED))
    assert read == deepseek_v32()
    assert read.ignored == IGNORED


def test_widths_of_v32():
    v32 = deepseek_v32()
    assert (v32.qk_head_dim, v32.d_qk, v32.d_v) == (192, 576, 512)
    assert (v32.hidden_size, v32.num_hidden_layers, v32.num_attention_heads) == (7168, 61, 128)
    assert (v32.index_topk, v32.index_n_heads, v32.index_head_dim) == (2048, 64, 128)


def test_softmax_scale_of_v32_has_the_mscale_squared():
    mscale = 0.1 * math.log(40) + 1
    assert deepseek_v32().softmax_scale == pytest.approx(192**-0.5 * mscale * mscale, rel=1e-15)
    assert round(deepseek_v32().softmax_scale, 4) == 0.1352
    assert deepseek_v32().softmax_scale / 576**-0.5 == pytest.approx(3.2456, abs=1e-4)


def test_softmax_scale_without_yarn_is_the_naive_head_width():
    plain = MLAConfig.from_mapping(changed(rope_scaling=None))
    assert plain.softmax_scale == pytest.approx(192**-0.5, rel=1e-15)


def test_v3_is_v32_without_the_indexer():
    v3 = deepseek_v3()
    assert (v3.index_topk, v3.index_n_heads, v3.index_head_dim) == (None, None, None)
    assert v3.softmax_scale == deepseek_v32().softmax_scale


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.json")), ids=lambda path: path.stem)
def test_every_shipped_number_has_a_source(path):
    document = json.loads(path.read_text(encoding="utf-8"))
    assert set(document["source_of"]) == set(document["config"])
    for sources in document["source_of"].values():
        assert sources
        assert set(sources) <= set(document["sources"])
    assert all("https://" in text for text in document["sources"].values())
    assert MLAConfig.from_mapping(document["config"]).ignored == ()


REQUIRED = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "q_lora_rank",
    "kv_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
    "max_position_embeddings",
    "rope_theta",
    "rms_norm_eps",
)


@pytest.mark.parametrize("name", REQUIRED)
def test_a_missing_field_is_named(name, tmp_path):
    with pytest.raises(ValueError, match=rf"^{name} missing: latent attention needs .*Is this the config.json"):
        MLAConfig.from_json(write(tmp_path, changed(**{name: ...})))


INTS = tuple(name for name in REQUIRED if name not in ("rope_theta", "rms_norm_eps"))
ALL_INTS = (*INTS, "index_topk", "index_n_heads", "index_head_dim", "num_key_value_heads")


@pytest.mark.parametrize("name", ALL_INTS)
@pytest.mark.parametrize("value", [True, "128", 128.0, [128]])
def test_a_count_of_the_wrong_type_is_named(name, value, tmp_path):
    with pytest.raises(TypeError, match=rf"^{name} must be a whole number: got .*{type(value).__name__}"):
        MLAConfig.from_json(write(tmp_path, changed(**{name: value})))


@pytest.mark.parametrize("name", ALL_INTS)
@pytest.mark.parametrize("value", [0, -1])
def test_a_count_that_is_not_positive_is_named(name, value, tmp_path):
    with pytest.raises(ValueError, match=rf"^{name} must be positive: got {value}$"):
        MLAConfig.from_json(write(tmp_path, changed(**{name: value})))


@pytest.mark.parametrize("name", ["rope_theta", "rms_norm_eps"])
def test_a_real_number_is_checked(name, tmp_path):
    for wrong in ("10000", True, None):
        with pytest.raises(TypeError, match=rf"^{name} must be a number: got"):
            MLAConfig.from_json(write(tmp_path, changed(**{name: wrong})))
    for wrong in (0, -1.0, math.nan, math.inf, 10**400):
        with pytest.raises(ValueError, match=rf"^{name} must be positive and finite: got"):
            MLAConfig.from_json(write(tmp_path, changed(**{name: wrong})))


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (changed(qk_rope_head_dim=63), "qk_rope_head_dim must be even, since RoPE turns pairs of values: got 63"),
        (
            changed(num_key_value_heads=8),
            "num_key_value_heads must equal num_attention_heads = 128 in latent attention",
        ),
        (changed(qk_head_dim=128), r"qk_head_dim must equal qk_nope_head_dim \+ qk_rope_head_dim = 192"),
        (changed(index_head_dim=...), "index_head_dim missing: index_topk and index_n_heads given"),
        (changed(index_topk=..., index_n_heads=...), "index_topk and index_n_heads missing: index_head_dim given"),
        (changed(attention_bias=True), "attention_bias must be false"),
        (changed(rope_theta=1), "rope_theta must be larger than 1"),
        (changed(max_position_embeddings=2048), "must not exceed max_position_embeddings.*got 4,096 and 2,048"),
        (scaling(type="llama3"), "rope_scaling.type must be 'yarn' or 'default': got 'llama3'"),
        (scaling(type=...), "rope_scaling.type must name one kind of scaling"),
        (scaling(rope_type="linear"), "rope_scaling.type must name one kind of scaling"),
        (scaling(mscale_all_dim=...), "rope_scaling.mscale_all_dim missing: YaRN in a DeepSeek model needs"),
        (scaling(attention_factor=1.2), "rope_scaling.attention_factor is not understood"),
        (scaling(mscale=0.707), "mscale and rope_scaling.mscale_all_dim must be equal.*got 0.707 and 1.0"),
        (scaling(factor=0.5), "rope_scaling.factor must be at least 1"),
        (scaling(factor=math.nan), "rope_scaling.factor must be positive and finite"),
        (scaling(beta_fast=1), "rope_scaling.beta_fast must be larger than rope_scaling.beta_slow: got 1 and 1"),
        (
            changed(rope_scaling={"type": "default", "factor": 2}),
            "rope_scaling.factor has no meaning with type 'default'",
        ),
        (changed(rope_parameters={"rope_theta": 500000}), "rope_theta is given twice and differs"),
        (
            changed(rope_parameters={"rope_type": "default"}),
            "rope_scaling and rope_parameters are both given and differ",
        ),
    ],
)
def test_a_contradiction_is_named(document, sentence, tmp_path):
    with pytest.raises(ValueError, match=sentence):
        MLAConfig.from_json(write(tmp_path, document))


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (changed(rope_scaling="yarn"), "rope_scaling must be an object or null"),
        (changed(rope_parameters=[1]), "rope_parameters must be an object"),
        (changed(attention_bias=0), "attention_bias must be true or false"),
        (changed(rope_interleave="yes"), "rope_interleave must be true or false"),
        (
            scaling(original_max_position_embeddings=4096.0),
            "rope_scaling.original_max_position_embeddings must be a whole",
        ),
        (scaling(factor="40"), "rope_scaling.factor must be a number"),
    ],
)
def test_a_wrong_type_is_named(document, sentence, tmp_path):
    with pytest.raises(TypeError, match=sentence):
        MLAConfig.from_json(write(tmp_path, document))


def test_both_spellings_of_the_rotary_fields_are_read(tmp_path):
    # transformers 5 writes one object, rope_parameters, with rope_type; e.g. hyper-accel/tiny-random-deepseek-v32.
    old = PUBLISHED["rope_scaling"]
    new = {name: value for name, value in old.items() if name != "type"} | {"rope_type": "yarn", "rope_theta": 10000}
    assert MLAConfig.from_json(write(tmp_path, changed(rope_theta=..., rope_scaling=..., rope_parameters=new))) == (
        deepseek_v32()
    )
    assert MLAConfig.from_json(write(tmp_path, changed(rope_parameters=new))) == deepseek_v32()
    # zai-org/GLM-5.2: no scaling.
    plain = {"rope_theta": 8000000, "rope_type": "default"}
    read = MLAConfig.from_json(write(tmp_path, changed(rope_theta=..., rope_scaling=..., rope_parameters=plain)))
    assert (read.rope_theta, read.rope_scaling) == (8000000, None)


def test_a_model_without_query_compression_or_repeated_fields_is_read():
    # DeepSeek-V2-Lite: "q_lora_rank": null.
    read = MLAConfig.from_mapping(changed(q_lora_rank=None, num_key_value_heads=..., qk_head_dim=192))
    assert read.q_lora_rank is None
    assert "qk_head_dim" not in read.ignored


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[1, 2]", "must hold one JSON object"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ('{"hidden_size": 7168, "hidden_size": 4096}', "hidden_size is given twice in the same object: 7168"),
        ("{}", "^hidden_size and num_hidden_layers and .* missing"),
    ],
)
def test_a_file_that_is_no_config_is_refused(text, sentence, tmp_path):
    with pytest.raises(ValueError, match=sentence):
        MLAConfig.from_json(write(tmp_path, text))


def test_a_missing_file_raises_file_not_found(tmp_path):
    with pytest.raises(FileNotFoundError):
        MLAConfig.from_json(tmp_path / "config.json")


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=12), st.integers() | st.text() | st.lists(st.none()), max_size=6))
def test_other_fields_are_ignored_and_listed(extra):
    known = set(PUBLISHED) | {"rope_parameters", "rope_interleave", "qk_head_dim"}
    extra = {name: value for name, value in extra.items() if name not in known}
    read = MLAConfig.from_mapping(PUBLISHED | extra)
    assert read == deepseek_v32()
    assert set(read.ignored) == set(IGNORED) | set(extra)
    assert list(read.ignored) == sorted(read.ignored)


def test_scaling_must_be_yarn_when_built_by_hand():
    values = {f: getattr(deepseek_v32(), f) for f in ("hidden_size", "num_hidden_layers", "num_attention_heads")}
    assert isinstance(deepseek_v32().rope_scaling, YarnScaling)
    with pytest.raises(TypeError, match="rope_scaling must be a YarnScaling or None"):
        MLAConfig(
            **values,
            q_lora_rank=None,
            kv_lora_rank=8,
            qk_nope_head_dim=4,
            qk_rope_head_dim=2,
            v_head_dim=4,
            max_position_embeddings=64,
            rope_theta=10000.0,
            rms_norm_eps=1e-6,
            rope_scaling={"factor": 2},
        )


def test_importing_config_does_not_load_torch():
    code = "import sys, mlacademy.config; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

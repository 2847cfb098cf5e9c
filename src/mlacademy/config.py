"""The numbers of a latent-attention (MLA) model, read from a Hugging Face ``config.json``.

One frozen dataclass, :class:`MLAConfig`, holds the fields that decide what attention computes and what its cache
stores. Its field names are those of ``config.json``. Everything else in the file (experts, vocabulary, quantisation of
the weights) does not change attention: it is ignored, and listed in :attr:`MLAConfig.ignored`.

Left out on purpose: attention biases and RoPE scalings other than YaRN. A file that asks for them is refused by name
rather than read as something it is not.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any

_REQUIRED_INTS = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "kv_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
    "max_position_embeddings",
)
_INDEX_FIELDS = ("index_topk", "index_n_heads", "index_head_dim")
_REQUIRED = (*_REQUIRED_INTS, "q_lora_rank", "rope_theta", "rms_norm_eps")


@dataclass(frozen=True)
class YarnScaling:
    """YaRN: how the rotary frequencies are stretched to read a longer context than the model was first trained on.

    ``factor`` is the stretch (40: 4,096 trained positions become 163,840). Pairs that turn more than ``beta_fast``
    times within ``original_max_position_embeddings`` positions keep their frequency, pairs that turn less than
    ``beta_slow`` times are slowed by ``factor``, the ones between are blended. ``mscale_all_dim`` also makes the
    softmax sharper, see :attr:`attention_mscale`. Field names are those of ``rope_scaling`` in ``config.json``.

    Raises ``TypeError`` for a wrong type and ``ValueError`` for a wrong value, naming the field.
    """

    factor: float
    original_max_position_embeddings: int
    beta_fast: float
    beta_slow: float
    mscale: float
    mscale_all_dim: float

    def __post_init__(self) -> None:
        _check_int("rope_scaling.original_max_position_embeddings", self.original_max_position_embeddings)
        for name in ("factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"):
            _check_real(f"rope_scaling.{name}", getattr(self, name))
        if self.factor < 1:
            raise ValueError(f"rope_scaling.factor must be at least 1 (it stretches the context): got {self.factor}")
        if self.beta_fast <= self.beta_slow:
            raise ValueError(
                "rope_scaling.beta_fast must be larger than rope_scaling.beta_slow: "
                f"got {self.beta_fast} and {self.beta_slow}"
            )
        if self.mscale != self.mscale_all_dim:
            raise ValueError(
                "rope_scaling.mscale and rope_scaling.mscale_all_dim must be equal, as in every DeepSeek model: got "
                f"{self.mscale} and {self.mscale_all_dim}. Different values would also rescale the rotated vectors, "
                "which this library does not do"
            )

    @property
    def attention_mscale(self) -> float:
        """``0.1 · mscale_all_dim · ln(factor) + 1``; the softmax scale is multiplied by its square (1.3689² = 1.8739).

        Source: DeepSeek-V3.2-Exp, ``inference/model.py``, class ``MLA``.
        """
        return 0.1 * self.mscale_all_dim * math.log(self.factor) + 1.0


@dataclass(frozen=True)
class MLAConfig:
    """What latent attention needs to know of a model. All sizes are counts of values, never bytes.

    ``q_lora_rank`` is ``None`` for models that project queries in one step (DeepSeek-V2-Lite). The three ``index_*``
    fields describe the lightning indexer of DeepSeek-V3.2; a model without it has ``None`` in all three.

    Raises ``TypeError`` for a field of the wrong type and ``ValueError`` for a value that is not allowed or that
    contradicts another field. The message names the field, says what came and what is allowed.

    >>> deepseek_v32().d_qk, deepseek_v32().d_v
    (576, 512)
    """

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    max_position_embeddings: int
    rope_theta: float
    rms_norm_eps: float
    rope_scaling: YarnScaling | None = None
    rope_interleave: bool = True
    index_topk: int | None = None
    index_n_heads: int | None = None
    index_head_dim: int | None = None
    ignored: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        for name in _REQUIRED_INTS:
            _check_int(name, getattr(self, name))
        for name in ("q_lora_rank", *_INDEX_FIELDS):
            if getattr(self, name) is not None:
                _check_int(name, getattr(self, name))
        for name in ("rope_theta", "rms_norm_eps"):
            _check_real(name, getattr(self, name))
        if not isinstance(self.rope_interleave, bool):
            raise TypeError(f"rope_interleave must be true or false: got {_shown(self.rope_interleave)}")
        if self.rope_scaling is not None and not isinstance(self.rope_scaling, YarnScaling):
            raise TypeError(f"rope_scaling must be a YarnScaling or None: got {_shown(self.rope_scaling)}")
        self._check_agreement()

    def _check_agreement(self) -> None:
        if self.qk_rope_head_dim % 2:
            raise ValueError(
                f"qk_rope_head_dim must be even, since RoPE turns pairs of values: got {self.qk_rope_head_dim}"
            )
        if self.rope_theta <= 1:
            raise ValueError(f"rope_theta must be larger than 1, as the base of a power: got {self.rope_theta}")
        given = [name for name in _INDEX_FIELDS if getattr(self, name) is not None]
        absent = [name for name in _INDEX_FIELDS if getattr(self, name) is None]
        if given and absent:
            raise ValueError(
                f"{' and '.join(absent)} missing: {' and '.join(given)} given, and the indexer needs all of "
                f"{', '.join(_INDEX_FIELDS)} (or none of them)"
            )
        if self.rope_scaling is not None:
            original = self.rope_scaling.original_max_position_embeddings
            if original > self.max_position_embeddings:
                raise ValueError(
                    "rope_scaling.original_max_position_embeddings must not exceed max_position_embeddings, since YaRN "
                    f"extends the context: got {original:,} and {self.max_position_embeddings:,}"
                )

    @property
    def qk_head_dim(self) -> int:
        """Width of a head's query and key in the naive form: 128 + 64 = 192."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def d_qk(self) -> int:
        """Width of an absorbed query and of a cached key: 512 + 64 = 576."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    @property
    def d_v(self) -> int:
        """Width of a cached value, which is the latent part of the key: 512."""
        return self.kv_lora_rank

    @property
    def softmax_scale(self) -> float:
        """What the model multiplies scores by: ``qk_head_dim^-0.5 · mscale²``, 0.1352 for DeepSeek-V3.2.

        The head width is that of the *naive* form (192), in both forms, because absorption does not change a score.
        A kernel library that is given no scale uses ``d_qk^-0.5`` = 1/24 = 0.0417, which is not this model.
        Source: DeepSeek-V3.2-Exp, ``inference/model.py``, class ``MLA``.
        """
        scale = 1.0 / math.sqrt(self.qk_head_dim)
        return scale if self.rope_scaling is None else scale * self.rope_scaling.attention_mscale**2

    @classmethod
    def from_json(cls, path: str | Path) -> MLAConfig:
        """Read a ``config.json`` as Hugging Face stores it.

        Raises ``FileNotFoundError`` when there is no such file, ``ValueError`` when it is no JSON object, when a field
        that attention needs is missing, not allowed, given twice or contradictory, ``TypeError`` when one has the
        wrong type. Both spellings of the rotary fields are read: ``rope_theta`` beside ``rope_scaling`` (as DeepSeek
        publishes them), and one ``rope_parameters`` object (as transformers 5 writes them).
        """
        text = Path(path).read_text(encoding="utf-8")
        try:
            loaded = json.loads(text, object_pairs_hook=_object_without_repeats)
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"{path} is not JSON: {error}") from error
        if not isinstance(loaded, dict):
            raise ValueError(f"{path} must hold one JSON object: it holds {_shown(loaded)}")
        return cls.from_mapping(loaded)

    @classmethod
    def from_mapping(cls, config: Mapping[str, Any]) -> MLAConfig:
        """Like :meth:`from_json`, for a ``config.json`` that is already a dictionary."""
        known = _with_rotary_fields(config)
        missing = [name for name in _REQUIRED if name not in known]
        if missing:
            raise ValueError(
                f"{' and '.join(missing)} missing: latent attention needs {', '.join(_REQUIRED)}. "
                "Is this the config.json of an MLA model?"
            )
        own = {f.name for f in fields(cls)} - {"ignored"}
        values = {name: known.pop(name) for name in own if name in known}
        config_with_names = cls(**values, ignored=tuple(sorted(set(known) - set(_CHECKED_ONLY))))
        _check_redundant(known, config_with_names)
        return config_with_names


# Fields that repeat what others say, or that switch on what this library does not have: read, compared, not kept.
_CHECKED_ONLY = ("num_key_value_heads", "qk_head_dim", "attention_bias")


def _check_redundant(given: Mapping[str, Any], config: MLAConfig) -> None:
    # Newer transformers write qk_head_dim; it always is the sum. MLA up-projects one key and value per query head, so
    # num_key_value_heads repeats num_attention_heads (the one latent all heads share is not counted there).
    expected = {
        "num_key_value_heads": (config.num_attention_heads, "num_attention_heads"),
        "qk_head_dim": (config.qk_head_dim, "qk_nope_head_dim + qk_rope_head_dim"),
    }
    for name, (value, rule) in expected.items():
        if given.get(name) is None:
            continue
        _check_int(name, given[name])
        if given[name] != value:
            raise ValueError(f"{name} must equal {rule} = {value} in latent attention: got {given[name]}")
    bias = given.get("attention_bias", False)
    if not isinstance(bias, bool):
        raise TypeError(f"attention_bias must be true or false: got {_shown(bias)}")
    if bias:
        raise ValueError("attention_bias must be false: projections with a bias are not supported")


def _with_rotary_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config with ``rope_theta`` and ``rope_scaling`` in one spelling, ``rope_scaling`` as YarnScaling or None."""
    known = dict(config)
    parameters = known.pop("rope_parameters", None)
    scaling = _yarn("rope_scaling", known.get("rope_scaling"))
    if parameters is not None:
        if not isinstance(parameters, dict):
            raise TypeError(f"rope_parameters must be an object: got {_shown(parameters)}")
        rest = dict(parameters)
        theta = rest.pop("rope_theta", None)
        if theta is not None and known.setdefault("rope_theta", theta) != theta:
            raise ValueError(
                f"rope_theta is given twice and differs: {known['rope_theta']} at the top, {theta} in rope_parameters"
            )
        other = _yarn("rope_parameters", rest or None)
        if "rope_scaling" in known and known["rope_scaling"] is not None and scaling != other:
            raise ValueError("rope_scaling and rope_parameters are both given and differ: keep one of them")
        scaling = other
    known["rope_scaling"] = scaling
    return known


def _yarn(where: str, scaling: object) -> YarnScaling | None:
    """``rope_scaling`` as an object of ours. Its kind stands under ``type`` (DeepSeek) or ``rope_type`` (newer)."""
    if scaling is None:
        return None
    if not isinstance(scaling, dict):
        raise TypeError(f"{where} must be an object or null: got {_shown(scaling)}")
    values = dict(scaling)
    kinds = {values.pop(key) for key in ("type", "rope_type") if isinstance(values.get(key), str)}
    if len(kinds) != 1 or {"type", "rope_type"} & set(values):
        raise ValueError(f"{where}.type must name one kind of scaling, as text (here or as rope_type): got {scaling}")
    kind = kinds.pop()
    if kind == "default":
        if values:
            raise ValueError(f"{where}.{min(values)} has no meaning with type 'default'")
        return None
    if kind != "yarn":
        raise ValueError(f"{where}.type must be 'yarn' or 'default': got {kind!r}")
    names = [f.name for f in fields(YarnScaling)]
    missing = [name for name in names if name not in values]
    if missing:
        raise ValueError(f"{where}.{missing[0]} missing: YaRN in a DeepSeek model needs {', '.join(names)}")
    unknown = sorted(set(values) - set(names))
    if unknown:
        raise ValueError(f"{where}.{unknown[0]} is not understood, and it may change attention: known are {names}")
    return YarnScaling(**values)


def _check_int(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number: got {_shown(value)}")
    if value <= 0:
        raise ValueError(f"{name} must be positive: got {value}")


def _check_real(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number: got {_shown(value)}")
    if not 0 < value <= sys.float_info.max:
        raise ValueError(f"{name} must be positive and finite: got {value}")


def _shown(value: object) -> str:
    return f"{json.dumps(value, default=repr)} ({type(value).__name__})"


def _object_without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in pairs:
        if name in result:
            raise ValueError(f"{name} is given twice in the same object: {_shown(result[name])} and {_shown(value)}")
        result[name] = value
    return result


def deepseek_v32() -> MLAConfig:
    """DeepSeek-V3.2 (and V3.2-Exp, whose attention fields are the same). Sources: ``models/deepseek_v32.json``."""
    return _shipped("deepseek_v32")


def deepseek_v3() -> MLAConfig:
    """DeepSeek-V3: the same attention without the indexer. Sources: ``models/deepseek_v3.json``."""
    return _shipped("deepseek_v3")


def _shipped(name: str) -> MLAConfig:
    document = json.loads(resources.files("mlacademy").joinpath("models", f"{name}.json").read_text(encoding="utf-8"))
    return MLAConfig.from_mapping(document["config"])

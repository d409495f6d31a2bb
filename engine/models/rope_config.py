"""Rope settings as JSON: read from config.json in both generations, written so that transformers loads them, compared with it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from engine.errors import InputError
from engine.models.catalog import config_path
from engine.models.configuration import LAYER_TYPES, rope_of
from engine.models.families import FAMILIES
from engine.models.files import read_json
from engine.models.frequencies import LAWS, settings_of
from engine.params import uses
from engine.progress import OnStep, silent
from engine.rope import LAW, RopeParams, divisors, frequencies
from engine.rope_laws import ntk_base, scaled

PASTE_LIMIT = 20_000
ROPE_TYPES = {scheme: kind for kind, scheme in LAWS.items()}


def parse(text: str) -> Mapping:
    """Return the object that pasted text holds; raise InputError for what is too long, no JSON, no object, or not finite."""
    if len(text) > PASTE_LIMIT:
        raise InputError(f"The pasted settings have {len(text)} characters; at most {PASTE_LIMIT} are read.")

    def refuse(name: str):
        raise InputError(f"The pasted settings hold {name}; numbers must be finite.")

    try:
        found = json.loads(text, parse_constant=refuse)
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError("The pasted settings are not JSON; paste a rope_parameters or rope_scaling object, or a config.json.") from error
    if not isinstance(found, Mapping):
        raise InputError("The pasted settings are not an object; paste a rope_parameters or rope_scaling object, or a config.json.")
    return found


def read_pasted(params: RopeParams, text: str) -> RopeParams:
    """Return the lab's settings with those of pasted JSON in place of its own; what the text leaves out stays."""
    return with_settings(params, *_rope_in(parse(text), params))


def of_model(params: RopeParams) -> RopeParams:
    """Return the lab's settings with those of the model's config.json in place of its own."""
    return with_settings(params, *rope_of(read_json(config_path(params.model))))


def with_settings(params: RopeParams, rope: Mapping, d_head: int, context: int) -> RopeParams:
    """Return ``params`` at the law, sizes and numbers of a rope object; raise ModelError or InputError for what is not understood."""
    scheme, s = settings_of(rope, d_head, context)
    lists = {name: ",".join(f"{v:.12g}" for v in getattr(s, name)) for name in ("short_factor", "long_factor")}
    names = ("factor", "base", "beta_fast", "beta_slow", "truncate", "ramp", "low_freq_factor", "high_freq_factor")
    explicit = s.attention_factor or (scaled("yarn", s)[1] if s.mscale and s.mscale_all_dim else 0.0)
    sizes = {"d_head": s.dims, "original_context": round(s.original_context), "attention_factor": explicit, "pairs": "all"}
    return replace(params, scheme=scheme, **{name: getattr(s, name) for name in names}, **sizes, **lists)


def _rope_in(found: Mapping, params: RopeParams) -> tuple[dict, int, int]:
    """Return (rope, d_head, context) of a rope object, of one inside an object, or of a whole config.json."""
    if found.get("model_type") in FAMILIES and "num_hidden_layers" in found:
        return rope_of(found)
    inner = next((found[key] for key in ("rope_scaling", "rope_parameters") if isinstance(found.get(key), Mapping)), None)
    rope = dict(found if inner is None and not {"rope_scaling", "rope_parameters"} & set(found) else inner or {})
    rope = dict(rope.get(LAYER_TYPES[0], rope)) if isinstance(rope.get(LAYER_TYPES[0], {}), Mapping) else rope
    rope = {"rope_theta": found.get("rope_theta") or params.base, **rope}
    trained = rope.get("original_max_position_embeddings") or params.original_context
    context = found.get("max_position_embeddings") or trained
    width = found.get("head_dim") or params.d_head
    for name, value in (("max_position_embeddings", context), ("head_dim", width)):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10**8:
            raise InputError(f"The pasted settings have {name} = {str(value)[:40]}; a whole number above 0 is needed.")
    return rope, width, context


def export(params: RopeParams) -> dict:
    """Return ``max_position_embeddings`` and ``rope_parameters`` that give a transformers model exactly this law.

    NTK-aware is a plain RoPE of another base; by parts is YaRN without its factor. A ramp in turns, or a law applied to some
    pairs only, has no name there: it is written as LongRoPE with one list for every length.
    """
    s, scheme, L = params.stretch(), params.scheme, params.original_context
    theta, attention_factor = scaled(scheme, s, params.pairs)
    rope = {"rope_type": ROPE_TYPES.get(scheme, "default"), "rope_theta": params.base}
    reach = {"factor": params.factor, "original_max_position_embeddings": L}
    if params.pairs != "all" or (scheme in ("by_parts", "yarn") and params.ramp != "index"):
        ratios = [float(v) for v in s.plain / theta]
        rope |= {"rope_type": "longrope", **reach, "short_factor": ratios, "long_factor": ratios, "attention_factor": attention_factor}
    elif scheme == "ntk":
        rope["rope_theta"] = ntk_base(s, s.factor)
    elif scheme in ("pi", "dynamic"):
        rope["factor"] = params.factor
    elif scheme in ("by_parts", "yarn"):
        rope |= {"rope_type": "yarn", **reach, "beta_fast": params.beta_fast, "beta_slow": params.beta_slow, "truncate": params.truncate}
        rope |= {"attention_factor": attention_factor} if scheme == "by_parts" or params.attention_factor else {}
    elif scheme == "llama3":
        rope |= {**reach, "low_freq_factor": params.low_freq_factor, "high_freq_factor": params.high_freq_factor}
    elif scheme == "longrope":
        lists = {name: list(divisors(name, getattr(params, name))) for name in ("short_factor", "long_factor")}
        rope |= {**reach, **{name: values or lists["long_factor"] for name, values in lists.items()}, "attention_factor": attention_factor}
    longest = L if rope["rope_type"] == "dynamic" else round(L * params.factor)
    return {"max_position_embeddings": longest, "rope_parameters": rope}


@dataclass(frozen=True)
class DifferenceResult:
    """Largest relative difference between the lab's inverse frequencies and transformers', and between attention factors."""

    version: str
    rope_type: str
    inv_freq: float
    attention_factor: float


@uses(*LAW)
def difference(params: RopeParams, on_step: OnStep = silent) -> DifferenceResult:
    """Return how far the law is from what transformers computes, in float32, from the exported settings at the same length."""
    import transformers
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    said, law = export(params), frequencies(params)
    config = transformers.LlamaConfig(hidden_size=params.d_head, num_attention_heads=1, head_dim=params.d_head, **said)
    kind = said["rope_parameters"]["rope_type"]
    if kind == "default":
        theirs, factor = LlamaRotaryEmbedding.compute_default_rope_parameters(config)
    else:
        theirs, factor = ROPE_INIT_FUNCTIONS[kind](config, seq_len=params.used_length)
    relative = np.abs(theirs.double().numpy() / law.scaled_inv_freq - 1).max()
    return DifferenceResult(transformers.__version__, kind, float(relative), abs(float(factor) / law.attention_factor - 1))

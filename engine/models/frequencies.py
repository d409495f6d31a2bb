"""The angles per token by which a model rotates q and k, from the rope settings of its config.json alone.

Reads a ``rope_parameters`` or ``rope_scaling`` object into what the laws of ``engine.rope_laws`` take. Without a length it
holds for prompts up to the trained one: beyond it, dynamic NTK and LongRoPE change with the length of the prompt.
"""

from collections.abc import Mapping

from engine.errors import InputError, ModelError
from engine.rope_laws import LAWS as SCHEMES
from engine.rope_laws import Stretch

SETTINGS = (
    "rope_type type rope_theta partial_rotary_factor factor original_max_position_embeddings attention_factor beta_fast beta_slow truncate mscale "
    "mscale_all_dim short_factor long_factor low_freq_factor high_freq_factor finetuned"
)
UNDERSTOOD = frozenset(SETTINGS.split())
LAWS = {"default": "none", "linear": "pi", "dynamic": "dynamic", "yarn": "yarn", "longrope": "longrope", "llama3": "llama3"}
"""``rope_type`` of config.json -> the law's name in ``engine.rope_laws``."""
MOST_PAIRS = 4096


def inverse_frequencies(rope: Mapping, d_head: int, context: int, length: int | None = None) -> tuple[tuple[float, ...], float]:
    """Return (theta, attention factor): theta (ceil(n_rotary / 2),) in radians per token, n_rotary = int(d_head * partial).

    ``rope`` holds rope_type, rope_theta, partial_rotary_factor and what the law needs; ``context`` is the number of
    positions that config.json declares; ``length`` that of the prompt (default: within the trained length).
    Raises ModelError for a law or a setting that is not understood.
    """
    law, stretch = settings_of(rope, d_head, context, length)
    try:
        theta, attention_factor = SCHEMES[law](stretch)
    except InputError as error:
        raise ModelError(str(error)) from error
    return tuple(float(t) for t in theta), attention_factor


def settings_of(rope: Mapping, d_head: int, context: int, length: int | None = None) -> tuple[str, Stretch]:
    """Return the law's name and what it reads; raise ModelError naming a setting that is missing or not understood."""
    kind = rope.get("rope_type") or rope.get("type") or "default"
    unknown = sorted(str(key) for key, value in rope.items() if key not in UNDERSTOOD and value is not None)
    if not isinstance(kind, str) or kind not in LAWS or unknown:
        known = isinstance(kind, str) and kind in LAWS
        what = f"setting {unknown[0][:40]!r}" if known else f"law {str(kind)[:40]!r}"
        raise ModelError(f"The rotation {what} is not understood; understood laws: {', '.join(LAWS)}.")
    base, partial = _number(rope, "rope_theta"), _number(rope, "partial_rotary_factor", 1.0)
    if base <= 1 or not 0 < partial <= 1:
        raise ModelError(f"The rotation has base {base:g} and partial factor {partial:g}; a base above 1 and a factor in (0, 1] are needed.")
    dims = int(d_head * partial)
    trained = float(context) if kind in ("default", "linear", "dynamic") else _number(rope, "original_max_position_embeddings", context)
    read = {"base": base, "dims": dims, "original_context": trained, "length": float(length or 0), **_READ[kind](rope, context / trained)}
    if kind == "longrope":
        read |= {name: _divisors(rope, name, (dims + 1) // 2, needed=name == "short_factor") for name in ("short_factor", "long_factor")}
    return LAWS[kind], Stretch(**read)


def _default(rope: Mapping, declared: float) -> dict:
    return {}


def _linear(rope: Mapping, declared: float) -> dict:
    return {"factor": _number(rope, "factor")}


def _dynamic(rope: Mapping, declared: float) -> dict:
    return {"factor": _number(rope, "factor", 1.0)}


def _yarn(rope: Mapping, declared: float) -> dict:
    """Read YaRN's settings; the factor may be left to what config.json declares over what was trained."""
    fast, slow = _number(rope, "beta_fast", 32.0), _number(rope, "beta_slow", 1.0)
    scales = {name: _number(rope, name) for name in ("attention_factor", "mscale", "mscale_all_dim") if rope.get(name)}
    truncate = rope.get("truncate", True) not in (False, None)
    return {"factor": _number(rope, "factor", declared), "beta_fast": fast, "beta_slow": slow, "truncate": truncate, **scales}


def _longrope(rope: Mapping, declared: float) -> dict:
    explicit = {"attention_factor": _number(rope, "attention_factor")} if rope.get("attention_factor") is not None else {}
    return {"factor": _number(rope, "factor", declared), **explicit}


def _llama3(rope: Mapping, declared: float) -> dict:
    read = {name: _number(rope, name) for name in ("factor", "low_freq_factor", "high_freq_factor")}
    if read["high_freq_factor"] <= read["low_freq_factor"]:
        raise ModelError(f"The rotation has high_freq_factor = {read['high_freq_factor']:g}; it must be above low_freq_factor.")
    return read


_READ = {"default": _default, "linear": _linear, "dynamic": _dynamic, "yarn": _yarn, "longrope": _longrope, "llama3": _llama3}


def _divisors(rope: Mapping, name: str, pairs: int, needed: bool) -> tuple[float, ...]:
    values = rope.get(name)
    if values is None and not needed:
        return ()
    if not isinstance(values, list) or len(values) != pairs or pairs > MOST_PAIRS or not all(_is_positive(f) for f in values):
        raise ModelError(f"The LongRoPE setting {name} must be a list of {pairs} positive numbers.")
    return tuple(float(f) for f in values)


def _number(rope: Mapping, name: str, default: float | None = None) -> float:
    """Return a positive number of the settings; raise ModelError if it is missing or anything else."""
    value = rope.get(name)
    value = default if value is None else value
    if not _is_positive(value):
        raise ModelError(f"The rotation has {name} = {str(value)[:40]}; a positive number is needed.")
    return float(value)


def _is_positive(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e30

"""The angles per token by which a model rotates q and k, from the rope settings of its config.json alone.

Each law maps the plain inverse frequencies theta_i = base^(-2i/d), i = 0..ceil(d/2)-1, to those that the model uses, and
gives the factor by which cos and sin are multiplied. All hold for prompts up to the length that the model was trained
on: beyond it, dynamic NTK and LongRoPE change with the length of the prompt.
"""

import math
from collections.abc import Mapping

from engine.errors import ModelError

SETTINGS = (
    "rope_type type rope_theta partial_rotary_factor factor original_max_position_embeddings attention_factor beta_fast beta_slow truncate mscale "
    "mscale_all_dim short_factor long_factor low_freq_factor high_freq_factor finetuned"
)
UNDERSTOOD = frozenset(SETTINGS.split())


def inverse_frequencies(rope: Mapping, d_head: int, context: int) -> tuple[tuple[float, ...], float]:
    """Return (theta, attention factor): theta (ceil(n_rotary / 2),) in radians per token, n_rotary = int(d_head * partial).

    ``rope`` holds rope_type, rope_theta, partial_rotary_factor and what the law needs; ``context`` is the number of
    positions that config.json declares. Raises ModelError for a law or a setting that is not understood.
    Sources: Su et al. 2104.09864; Chen et al. 2306.15595; YaRN 2309.00071; LongRoPE 2402.13753; Llama 3.1 (2407.21783).
    """
    law = rope.get("rope_type") or rope.get("type") or "default"
    unknown = sorted(key for key, value in rope.items() if key not in UNDERSTOOD and value is not None)
    if law not in LAWS or unknown:
        what = f"law {str(law)[:40]!r}" if law not in LAWS else f"setting {unknown[0][:40]!r}"
        raise ModelError(f"The rotation {what} is not understood; understood laws: {', '.join(LAWS)}.")
    base, partial = _number(rope, "rope_theta"), _number(rope, "partial_rotary_factor", 1.0)
    if base <= 1 or not 0 < partial <= 1:
        raise ModelError(f"The rotation has base {base:g} and partial factor {partial:g}; a base above 1 and a factor in (0, 1] are needed.")
    dims = int(d_head * partial)
    plain = [base ** (-2 * i / dims) for i in range((dims + 1) // 2)]
    theta, attention_factor = LAWS[law](plain, rope, dims, context)
    return tuple(theta), attention_factor


def _unchanged(plain, rope, dims, context):
    """No law; also dynamic NTK within the trained length, where its base is the plain one."""
    return plain, 1.0


def _linear(plain, rope, dims, context):
    """Position interpolation: every angle divided by the factor."""
    factor = _number(rope, "factor")
    return [theta / factor for theta in plain], 1.0


def _llama3(plain, rope, dims, context):
    """Keep waves shorter than L/h, divide those longer than L/l by the factor, blend linearly in L/wavelength between."""
    factor, low, high = (_number(rope, name) for name in ("factor", "low_freq_factor", "high_freq_factor"))
    trained = _number(rope, "original_max_position_embeddings", context)
    kept = lambda theta: min(max((trained * theta / (2 * math.pi) - low) / (high - low), 0.0), 1.0)  # noqa: E731
    return [kept(theta) * theta + (1 - kept(theta)) * theta / factor for theta in plain], 1.0


def _yarn(plain, rope, dims, context):
    """Blend theta/s and theta by a ramp linear in the pair's index, as the published code does (the paper's is in turns)."""
    trained = _number(rope, "original_max_position_embeddings", context)
    factor = _number(rope, "factor", context / trained)
    base, truncate = _number(rope, "rope_theta"), rope.get("truncate", True)
    index = lambda turns: dims * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(base))  # noqa: E731
    first, last = index(_number(rope, "beta_fast", 32.0)), index(_number(rope, "beta_slow", 1.0))
    if truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dims - 1)
    width = (last - first) or 0.001
    ramp = [min(max((i - first) / width, 0.0), 1.0) for i in range(len(plain))]
    return [r * theta / factor + (1 - r) * theta for r, theta in zip(ramp, plain, strict=True)], _yarn_attention_factor(rope, factor)


def _yarn_attention_factor(rope, factor: float) -> float:
    """Return the explicit factor, else g(s, mscale) / g(s, mscale_all_dim), else g(s, 1), with g(s, m) = 0.1 m ln s + 1."""
    grow = lambda m: 0.1 * m * math.log(factor) + 1 if factor > 1 else 1.0  # noqa: E731
    if rope.get("attention_factor") is not None:
        return _number(rope, "attention_factor")
    if rope.get("mscale") and rope.get("mscale_all_dim"):
        return grow(_number(rope, "mscale")) / grow(_number(rope, "mscale_all_dim"))
    return grow(1.0)


def _longrope(plain, rope, dims, context):
    """Divide each angle by its searched factor; those for prompts within the trained length are ``short_factor``."""
    trained = _number(rope, "original_max_position_embeddings", context)
    factor, divisors = _number(rope, "factor", context / trained), rope.get("short_factor")
    if not isinstance(divisors, list) or len(divisors) != len(plain) or not all(_is_positive(f) for f in divisors):
        raise ModelError(f"The LongRoPE setting short_factor must be a list of {len(plain)} positive numbers.")
    default = math.sqrt(1 + math.log(factor) / math.log(trained)) if factor > 1 else 1.0
    return [theta / f for theta, f in zip(plain, divisors, strict=True)], _number(rope, "attention_factor", default)


LAWS = {"default": _unchanged, "dynamic": _unchanged, "linear": _linear, "llama3": _llama3, "yarn": _yarn, "longrope": _longrope}


def _number(rope: Mapping, name: str, default: float | None = None) -> float:
    """Return a positive number of the settings; raise ModelError if it is missing or anything else."""
    value = rope.get(name)
    value = default if value is None else value
    if not _is_positive(value):
        raise ModelError(f"The rotation has {name} = {str(value)[:40]}; a positive number is needed.")
    return float(value)


def _is_positive(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e30

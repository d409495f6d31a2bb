"""The laws that stretch a rotary model beyond its trained length: one short function each, in double precision.

Each law maps the plain inverse frequencies theta_i = base^(-2i/d), i = 0..ceil(d/2)-1, to those that the model uses, and
gives the attention factor by which cos and sin are multiplied: scores are multiplied by its square.
Sources: Su et al. 2104.09864; Chen et al. 2306.15595 (PI); bloc97 and emozilla 2023 (NTK-aware, dynamic NTK); Peng et al.
2309.00071 (by parts, YaRN); Ding et al. 2402.13753 (LongRoPE); Llama 3.1, 2407.21783.
"""

import math
from dataclasses import dataclass

import numpy as np

from engine.errors import InputError

RAMPS = {"index": "even in the pair's index, as the code does", "turns": "even in turns, as the paper says"}
PAIRS = {"all": "as the law says", "slow": "only pairs without a full turn", "fast": "only pairs with one", "none": "no pair"}


def comb(base: float, dims: int) -> np.ndarray:
    """Return theta_i = base^(-2i/d) in radians per token, (ceil(d/2),): the comb of frequencies of plain RoPE."""
    return base ** (-2 * np.arange((dims + 1) // 2) / dims)


@dataclass(frozen=True)
class Stretch:
    """What the laws read. ``dims``: rotary dimensions; ``original_context``: the trained length L, in tokens.

    ``factor`` s = L'/L; ``length``: tokens in use (dynamic, longrope); ``beta_fast``, ``beta_slow``: turns within L above
    which a pair is kept and below which it is divided by s (by parts, YaRN), with ``ramp`` even in the pair's index, its ends
    rounded outwards if ``truncate``, or even in turns. ``attention_factor``: explicit, else the law's own.
    """

    base: float
    dims: int
    original_context: float
    factor: float = 1.0
    length: float = 0.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    ramp: str = "index"
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    short_factor: tuple[float, ...] = ()
    long_factor: tuple[float, ...] = ()
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None

    @property
    def plain(self) -> np.ndarray:
        """theta_i = base^(-2i/d) in radians per token, (ceil(d/2),)."""
        return comb(self.base, self.dims)

    @property
    def turns(self) -> np.ndarray:
        """r_i = L / lambda_i: turns that each pair completes within the trained length."""
        return self.original_context * self.plain / (2 * math.pi)


def scaled(scheme: str, s: Stretch, pairs: str = "all") -> tuple[np.ndarray, float]:
    """Return (theta', attention factor) of a law, applied to ``pairs``: all, slow (no full turn within L), fast, or none."""
    theta, attention_factor = LAWS[scheme](s)
    slow = s.turns < 1
    chosen = {"all": np.ones_like(slow), "slow": slow, "fast": ~slow, "none": np.zeros_like(slow)}[pairs]
    return np.where(chosen, theta, s.plain), 1.0 if pairs == "none" else attention_factor


def plain(s: Stretch) -> tuple[np.ndarray, float]:
    """theta' = theta."""
    return s.plain, 1.0


def pi(s: Stretch) -> tuple[np.ndarray, float]:
    """Position interpolation: theta' = theta / s."""
    return s.plain / s.factor, 1.0


def ntk(s: Stretch) -> tuple[np.ndarray, float]:
    """NTK-aware: base' = base s^(d/(d-2)); the fastest pair is kept, the slowest divided by s."""
    return comb(ntk_base(s, s.factor), s.dims), 1.0


def dynamic(s: Stretch) -> tuple[np.ndarray, float]:
    """Dynamic NTK: the same with s l/L - (s - 1) for s, l = max(length, L): plain RoPE up to L, another base at each length."""
    return comb(dynamic_base(s), s.dims), 1.0


def by_parts(s: Stretch) -> tuple[np.ndarray, float]:
    """NTK by parts: theta' = (1 - kept) theta / s + kept theta, kept falling from 1 at beta_fast turns to 0 at beta_slow."""
    kept = KEPT[s.ramp](s)
    return (1 - kept) * s.plain / s.factor + kept * s.plain, 1.0


def yarn(s: Stretch) -> tuple[np.ndarray, float]:
    """By parts, with cos and sin multiplied by 0.1 ln s + 1 unless an attention factor or two scales are given."""
    return by_parts(s)[0], _yarn_attention_factor(s)


def longrope(s: Stretch) -> tuple[np.ndarray, float]:
    """theta' = theta / f with searched f: short_factor up to L, long_factor beyond; attention factor sqrt(1 + ln s / ln L)."""
    name = "short_factor" if s.length <= s.original_context else "long_factor"
    divisors = np.array(getattr(s, name), dtype=float)
    if divisors.shape != s.plain.shape or not (np.isfinite(divisors) & (divisors > 0)).all():
        raise InputError(f"LongRoPE has {len(divisors)} numbers in {name}; one positive number for each of {len(s.plain)} pairs is needed.")
    if s.attention_factor is not None:
        return s.plain / divisors, s.attention_factor
    if s.original_context <= 1:
        raise InputError(f"LongRoPE has an original context of {s.original_context:g}; its attention factor needs more than 1 token.")
    return s.plain / divisors, math.sqrt(1 + math.log(s.factor) / math.log(s.original_context)) if s.factor > 1 else 1.0


def llama3(s: Stretch) -> tuple[np.ndarray, float]:
    """Keep waves shorter than L/high, divide those longer than L/low by s, blend evenly in L/wavelength between."""
    kept = np.clip((s.turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor), 0, 1)
    return kept * s.plain + (1 - kept) * s.plain / s.factor, 1.0


LAWS = {"none": plain, "pi": pi, "ntk": ntk, "dynamic": dynamic, "by_parts": by_parts, "yarn": yarn, "longrope": longrope, "llama3": llama3}


def ntk_base(s: Stretch, factor: float) -> float:
    """Return base * factor^(d/(d-2)); raise InputError where d - 2 is not positive."""
    if s.dims <= 2:
        raise InputError(f"NTK has {s.dims} rotary dimensions; its exponent d/(d-2) needs at least 4.")
    return s.base * factor ** (s.dims / (s.dims - 2))


def dynamic_base(s: Stretch) -> float:
    """Return the base of dynamic NTK at ``length``, as transformers has it; within L it is the plain one."""
    over = max(s.length, s.original_context) / s.original_context
    return ntk_base(s, s.factor * over - (s.factor - 1))


def correction_index(s: Stretch, turns: float) -> float:
    """Return c(n) = d ln(L / (2 pi n)) / (2 ln base): the index, not rounded, of the pair that makes n turns within L."""
    return s.dims * math.log(s.original_context / (2 * math.pi * turns)) / (2 * math.log(s.base))


def _kept_by_index(s: Stretch) -> np.ndarray:
    first, last = correction_index(s, s.beta_fast), correction_index(s, s.beta_slow)
    if s.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, s.dims - 1)
    width = (last - first) or 0.001
    return 1 - np.clip((np.arange(len(s.plain)) - first) / width, 0, 1)


def _kept_by_turns(s: Stretch) -> np.ndarray:
    return np.clip((s.turns - s.beta_slow) / (s.beta_fast - s.beta_slow), 0, 1)


KEPT = {"index": _kept_by_index, "turns": _kept_by_turns}


def _yarn_attention_factor(s: Stretch) -> float:
    """Return the explicit factor, else g(s, mscale) / g(s, mscale_all_dim), else g(s, 1), with g(s, m) = 0.1 m ln s + 1."""
    grow = lambda m: 0.1 * m * math.log(s.factor) + 1 if s.factor > 1 else 1.0  # noqa: E731
    if s.attention_factor is not None:
        return s.attention_factor
    return grow(s.mscale) / grow(s.mscale_all_dim) if s.mscale and s.mscale_all_dim else grow(1.0)

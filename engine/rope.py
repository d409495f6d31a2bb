"""RoPE: what turns at which speed, which pairs never complete a turn in training, and what each law changes.

Sources: Su et al. 2104.09864; seeds 003 (rotation, visualiser, stretching) and 002 (sinusoidal positions).
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from engine.errors import InputError
from engine.params import Number, frozen, uses
from engine.progress import OnStep, silent
from engine.rope_laws import LAWS, PAIRS, RAMPS, Stretch, scaled

VECTORS = {"same": "k = q", "random": "k drawn by itself", "dragged": "as set by hand"}
FACTOR_LIMIT, LENGTH_LIMIT, WIDTH_LIMIT, BASE_LIMIT, REACH_LIMIT = 1024.0, 100_000_000, 4096, 1e12, 8
TEXT_LIMIT = 100_000
ALL_PAIRS, SOME_PAIRS = 8, 4


@dataclass(frozen=True)
class RopeParams:
    """What the RoPE lab can be asked. ``scheme``: none, pi, ntk, dynamic, by_parts, yarn, longrope or llama3.

    ``factor``: how many times the original context is to be reached; ``length``: tokens in use, for dynamic and longrope
    (0: twice the original context); ``ramp``: index or turns (by_parts, yarn); ``pairs``: which pairs the law is applied to
    (all, slow, fast, none); ``short_factor``, ``long_factor``: comma lists, a number per pair (longrope);
    ``attention_factor``: 0 for the law's own. ``position``, ``kind`` (same, random, dragged), ``q``, ``k``: the rotor. ``model`` and ``reach``
    (how far, in trained contexts) are for what is measured.
    """

    model: str = "fable"
    scheme: str = "yarn"
    factor: float = 4.0
    reach: int = 4
    position: int = 64
    base: float = 10000.0
    d_head: int = 32
    original_context: int = 256
    length: int = 0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    ramp: str = "index"
    pairs: str = "all"
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    short_factor: str = ""
    long_factor: str = ""
    attention_factor: float = 0.0
    kind: str = "same"
    q: tuple[float, ...] = (1.0, 0.0) * 4
    k: tuple[float, ...] = (1.0, 0.0) * 4

    def __post_init__(self):
        for name, options in (("scheme", LAWS), ("ramp", RAMPS), ("pairs", PAIRS), ("kind", VECTORS)):
            if getattr(self, name) not in options:
                raise InputError(f"The {name} is {str(getattr(self, name))[:40]!r}; accepted are {', '.join(options)}.")
        self._check_ranges()
        if self.d_head % 2:
            raise InputError(f"The head width is {self.d_head}; dimensions turn in pairs, so an even number is needed.")
        if not self.beta_slow < self.beta_fast:
            raise InputError(f"beta_fast is {self.beta_fast:g} and beta_slow {self.beta_slow:g}; beta_fast must be the larger.")
        if not self.low_freq_factor < self.high_freq_factor:
            low, high = self.low_freq_factor, self.high_freq_factor
            raise InputError(f"high_freq_factor is {high:g}; it must be above low_freq_factor, which is {low:g}.")
        for name in ("short_factor", "long_factor"):
            divisors(name, getattr(self, name))

    def _check_ranges(self) -> None:
        """Raise InputError for a number outside what is accepted, NaN and infinity included."""
        accepted = {
            "factor": (1, FACTOR_LIMIT),
            "reach": (1, REACH_LIMIT),
            "position": (0, LENGTH_LIMIT),
            "base": (1, BASE_LIMIT),
            "d_head": (2, WIDTH_LIMIT),
            "original_context": (1, LENGTH_LIMIT),
            "length": (0, LENGTH_LIMIT),
            "beta_fast": (1e-6, 1e6),
            "beta_slow": (1e-6, 1e6),
            "low_freq_factor": (1e-6, 1e6),
            "high_freq_factor": (1e-6, 1e6),
            "attention_factor": (0, 100),
        }
        for name, (low, high) in accepted.items():
            value = getattr(self, name)
            if not low <= value <= high or (name == "base" and value == 1):
                above = "above 1, up to" if name == "base" else f"{low:g} to"
                raise InputError(f"{name.replace('_', ' ').capitalize()} is {value:g}; accepted is {above} {high:g}.")

    @property
    def used_length(self) -> int:
        """Tokens in use: as said, else twice the original context."""
        return self.length or 2 * self.original_context

    def stretch(self, dims: int = 0, base: float = 0.0, original_context: int = 0, length: int = 0) -> Stretch:
        """Return what the laws read; what is given here (a model's own, a run's length) replaces the lab's setting."""
        given = {
            name: getattr(self, name) for name in ("factor", "beta_fast", "beta_slow", "truncate", "ramp", "low_freq_factor", "high_freq_factor")
        }
        lists = {name: divisors(name, getattr(self, name)) for name in ("short_factor", "long_factor")}
        sizes = {"base": base or self.base, "dims": dims or self.d_head, "original_context": float(original_context or self.original_context)}
        return Stretch(**sizes, **given, **lists, length=float(length or self.used_length), attention_factor=self.attention_factor or None)


LAW = (
    *("scheme", "factor", "base", "d_head", "original_context", "length", "beta_fast", "beta_slow", "truncate", "ramp", "pairs"),
    *("low_freq_factor", "high_freq_factor", "short_factor", "long_factor", "attention_factor"),
)
"""The fields that decide a law's frequencies."""


@dataclass(frozen=True)
class RopeResult:
    """A law's frequencies beside the plain ones, in radians per token, each (d_head / 2,).

    ``wavelength`` 2 pi / inv_freq, in tokens; ``ratio`` scaled / plain; ``turns`` within the original context;
    ``unfinished``: pairs whose plain wavelength exceeds the original context.
    """

    scheme: str
    factor: float
    base: float
    d_head: int
    original_context: int
    length: int
    ramp: str
    pairs: str
    attention_factor: float
    unfinished: int
    inv_freq: np.ndarray
    scaled_inv_freq: np.ndarray
    ratio: np.ndarray
    wavelength: np.ndarray
    scaled_wavelength: np.ndarray
    turns: np.ndarray


@uses(*LAW)
def frequencies(params: RopeParams, on_step: OnStep = silent) -> RopeResult:
    """Return the law's inverse frequencies and attention factor beside the plain ones; raise InputError if it cannot be formed."""
    s = params.stretch()
    theta, attention_factor = scaled(params.scheme, s, params.pairs)
    asked = {name: getattr(params, name) for name in ("scheme", "factor", "base", "d_head", "original_context", "ramp", "pairs")}
    arrays = {"inv_freq": s.plain, "scaled_inv_freq": theta, "ratio": theta / s.plain, "turns": s.turns}
    waves = {"wavelength": 2 * math.pi / s.plain, "scaled_wavelength": 2 * math.pi / theta}
    counts = {"length": params.used_length, "attention_factor": float(attention_factor), "unfinished": int((s.turns < 1).sum())}
    return RopeResult(**asked, **counts, **{name: frozen(values) for name, values in (arrays | waves).items()})


def refusal(params: RopeParams) -> str:
    """Return why the law cannot be formed from these settings, or an empty string."""
    try:
        frequencies(params)
    except InputError as error:
        return str(error)
    return ""


def report(params: RopeParams, on_step: OnStep = silent) -> RopeResult:
    """Return the law's frequencies (the command line's entry)."""
    return frequencies(params, on_step)


def table(result: RopeResult) -> tuple[list[str], list[list]]:
    """Return a header and one row per pair."""
    header = ["pair", "inv_freq", "scaled_inv_freq", "ratio", "wavelength", "turns"]
    columns = (result.inv_freq, result.scaled_inv_freq, result.ratio, result.wavelength, result.turns)
    return header, [[i, *(float(c[i]) for c in columns)] for i in range(len(result.inv_freq))]


def divisors(name: str, text: str) -> tuple[float, ...]:
    """Return the numbers of a comma list; raise InputError if there are more than pairs can be, or one is none above 0."""
    words = [word.strip() for word in text[: TEXT_LIMIT + 1].split(",")] if text.strip() else []
    try:
        values = tuple(float(word) for word in words) if len(text) <= TEXT_LIMIT else (math.nan,)
    except ValueError:
        values = (math.nan,)
    if len(values) > WIDTH_LIMIT // 2 or not all(0 < value < math.inf for value in values):
        raise InputError(f"The {name} is {text[:30]!r}; a list of positive numbers with commas between is accepted, one per pair.")
    return values


def example_lists(params: RopeParams) -> dict[str, str]:
    """Return LongRoPE's two lists as an example of this lab's own, not the paper's: 1 within L, the divisors of by parts beyond."""
    ratio = frequencies(replace(params, scheme="by_parts")).ratio
    return {"short_factor": ",".join(["1"] * len(ratio)), "long_factor": ",".join(f"{1 / r:.6g}" for r in ratio)}


def shown_pairs(d_head: int) -> np.ndarray:
    """Return the indices of the pairs that the rotor shows: all up to 8, else up to 4 evenly spaced: RoPE of that width by itself."""
    n = d_head // 2
    count = n if n <= ALL_PAIRS else max(c for c in range(1, SOME_PAIRS + 1) if n % c == 0)
    return np.arange(0, n, n // count)


@dataclass(frozen=True)
class RotorResult:
    """What the rotor starts from: ``d`` dimensions, vectors q and k (d,) of pairs (2i, 2i + 1), the shown pairs' frequencies."""

    d: int
    pairs: np.ndarray
    inv_freq: np.ndarray
    scaled_inv_freq: np.ndarray
    attention_factor: float
    q: np.ndarray
    k: np.ndarray


@uses(*LAW, "kind", "q", "k")
def rotor(params: RopeParams, on_step: OnStep = silent) -> RotorResult:
    """Return the rotor's vectors and the frequencies of the pairs that it shows.

    Lists of another width are left aside: then vectors have length sqrt(d / 2), even over the pairs if both are the same.
    """
    law, pairs = frequencies(params), shown_pairs(params.d_head)
    d = 2 * len(pairs)
    drawn = np.random.default_rng(0).standard_normal((2, d))
    drawn *= np.sqrt(d / 2) / np.linalg.norm(drawn, axis=1, keepdims=True)
    start = (even_vector(d),) * 2 if params.kind == "same" else drawn
    q, k = (np.array(given) if len(given) == d else other for given, other in zip((params.q, params.k), start, strict=True))
    k = q if params.kind == "same" else k
    arrays = (pairs, law.inv_freq[pairs], law.scaled_inv_freq[pairs])
    return RotorResult(d, *(frozen(a) for a in arrays), law.attention_factor, frozen(q), frozen(k))


def even_vector(d: int) -> np.ndarray:
    """Return (1, 0, 1, 0, ...), (d,): against itself its score is the sum of cos(delta theta_i)."""
    return np.tile([1.0, 0.0], d // 2)


def score(inv_freq: np.ndarray, q: np.ndarray, k: np.ndarray, delta) -> np.ndarray:
    """Return q^T R_(-delta) k = sum_i Re(q_i conj(k_i) e^(i delta theta_i)) at distances ``delta`` back from query to key.

    q, k (2n,) hold pairs (2i, 2i + 1), read as complex numbers; delta any shape; the result has delta's shape.
    """
    products = (q[0::2] + 1j * q[1::2]) * np.conj(k[0::2] + 1j * k[1::2])
    return (products * np.exp(1j * np.asarray(delta)[..., None] * inv_freq)).real.sum(-1)


def rotor_numbers(params: RopeParams, result: RotorResult, law: RopeResult) -> dict[str, Number]:
    """Return the unfinished pairs, and the score at ``position`` tokens back, plain and under the law.

    Chance: unrelated q and k of these lengths score 0 with a standard deviation of |q| |k| / sqrt(d).
    """
    at = lambda inv_freq, back=params.position: float(score(inv_freq, result.q, result.k, back))  # noqa: E731
    under = result.attention_factor**2 * at(result.scaled_inv_freq)
    spread = float(np.linalg.norm(result.q) * np.linalg.norm(result.k) / math.sqrt(result.d))
    return {
        "unfinished": Number("Unfinished pairs", float(law.unfinished), params.d_head // 2, 0, against="of"),
        "score": Number(f"Score {params.position} back", under, spread, 2, against="chance 0 ±"),
        "plain_score": Number(f"Plain score {params.position} tokens back", at(result.inv_freq), 0.0, 3),
        "nearer": Number("Score 6 tokens back less that 3 back", at(result.inv_freq, 6) - at(result.inv_freq, 3), 0.0, 2),
    }

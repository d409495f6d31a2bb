"""What a transformer's feed-forward part costs: parameters, operations per token, and whether arithmetic or memory limits it.

Counts are those of the published configurations, part by part. Sources: seeds 000, 001 (section 08), 002 (exercise 12); each
configuration from the config.json of its release; DeepSeek-V3: arXiv 2412.19437; roofline: Williams et al. 2009, CACM 52 (4).
"""

from dataclasses import dataclass

import numpy as np

from engine.errors import InputError
from engine.ffn_params import FfnParams
from engine.params import Number, frozen, uses
from engine.progress import OnStep, silent

PARTS = ("feed-forward", "attention, projections", "attention, scores", "unembedding", "norms and other elementwise")
CONTEXTS = tuple(2**n for n in range(7, 18))
BATCHES = tuple(2**n for n in range(13))
PER_NUMBER = 5  # operations that a norm, a softmax or an activation is counted with, for each number that passes
WEIGHT_BYTES = 2  # bfloat16
OWN_LAYERS, OWN_VOCABULARY = 32, 32_000


@dataclass(frozen=True)
class Latent:
    """Sizes of multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): ranks of the query and key-value latents, head parts."""

    query: int
    key_value: int
    plain: int
    rotary: int
    value: int


@dataclass(frozen=True)
class Architecture:
    """The sizes that parameters and operations depend on. ``d_ff``: width of one expert where there are several.

    The first ``dense_layers`` layers have one feed-forward layer of ``dense_d_ff``; ``shared`` experts take every token.
    ``positions``: learned position embeddings; ``window``: tokens that a token sees, where not all; ``biases``: on every matrix and norm.
    """

    label: str
    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_head: int
    d_ff: int
    vocabulary: int
    gated: bool = True
    tied: bool = False
    biases: bool = False
    qk_norm: bool = False
    positions: int = 0
    window: int | None = None
    experts: int = 1
    top_k: int = 1
    shared: int = 0
    dense_layers: int = 0
    dense_d_ff: int = 0
    latent: Latent | None = None

    @property
    def ratio(self) -> float:
        """Width of the units that one token passes in a (sparse) layer, over d_model."""
        return (self.top_k + self.shared) * self.d_ff / self.d_model

    def expert(self, d_ff: int | None = None) -> int:
        """Parameters of one feed-forward layer or expert."""
        d_ff = d_ff or self.d_ff
        matrices = (3 if self.gated else 2) * self.d_model * d_ff
        return matrices + (self.d_model + d_ff * (2 if self.gated else 1)) * self.biases

    def feed_forward(self, active: bool = False) -> int:
        """Parameters of all feed-forward layers with their routers; ``active``: those that one token passes."""
        sparse, used = self.n_layers - self.dense_layers, self.top_k if active else self.experts
        router = self.d_model * self.experts if self.experts > 1 else 0
        return sparse * (self.expert() * (used + self.shared) + router) + self.dense_layers * self.expert(self.dense_d_ff or None)

    def attention(self) -> int:
        """Parameters of W_Q, W_K, W_V and W_O of all layers, latents' own norms included."""
        d, h = self.d_model, self.n_heads
        if self.latent:
            m = self.latent
            query = d * m.query + m.query + m.query * h * (m.plain + m.rotary)
            return self.n_layers * (query + d * (m.key_value + m.rotary) + m.key_value + m.key_value * h * (m.plain + m.value) + h * m.value * d)
        heads = (h + 2 * self.n_kv_heads) * self.d_head
        return self.n_layers * (d * heads + h * self.d_head * d + (heads + d) * self.biases)

    def norms(self) -> int:
        """Parameters of two norms a layer and one at the end, and of norms on queries and keys."""
        return (2 * self.n_layers + 1) * self.d_model * (1 + self.biases) + self.n_layers * 2 * self.d_head * self.qk_norm

    def embeddings(self) -> int:
        """Parameters of the embedding, of learned positions, and of the unembedding unless tied."""
        return self.d_model * (self.vocabulary * (1 if self.tied else 2) + self.positions)

    def parameters(self) -> int:
        """All parameters."""
        return self.feed_forward() + self.attention() + self.norms() + self.embeddings()

    def flops(self, context: int) -> dict[str, float]:
        """Return operations for one token, mean over a sequence of ``context`` tokens, by part; a multiply-add counts as two.

        A token sees (context + 1) / 2 tokens on average, fewer within a window. Scores: q . k and the weighted values.
        """
        width = context if self.window is None else min(self.window, context)
        seen = (width * (width + 1) / 2 + (context - width) * width) / context
        sizes = (self.latent.plain + self.latent.rotary, self.latent.value) if self.latent else (self.d_head, self.d_head)
        hidden = self.n_layers * (self.top_k + self.shared) * self.d_ff
        passing = (2 * self.n_layers + 1) * self.d_model + hidden + self.n_layers * self.n_heads * seen
        counts = (
            2 * self.feed_forward(active=True),
            2 * self.attention(),
            2 * self.n_layers * self.n_heads * sum(sizes) * seen,
            2 * self.d_model * self.vocabulary,
            PER_NUMBER * passing,
        )
        return dict(zip(PARTS, map(float, counts), strict=True))

    def intensity(self, batch: np.ndarray) -> np.ndarray:
        """Return operations per byte moved of one feed-forward layer, (n,), for ``batch`` tokens at once in 16 bits.

        Every weight is read once, as are each matrix's input and output. Of several experts, E (1 - (1 - k / E)^batch) are
        touched if the router spreads tokens evenly.
        """
        batch = np.asarray(batch, dtype=float)
        touched = self.experts * (1 - (1 - self.top_k / self.experts) ** batch) if self.experts > 1 else np.ones_like(batch)
        used, matrices = self.top_k + self.shared, 3 if self.gated else 2
        moved = (touched + self.shared) * self.expert() + batch * used * matrices * (self.d_model + self.d_ff)
        return 2 * batch * used * self.expert() / (WEIGHT_BYTES * moved)


ARCHITECTURES = {
    "gpt2": Architecture("GPT-2", 768, 12, 12, 12, 64, 3072, 50257, gated=False, tied=True, biases=True, positions=1024),
    "llama-2-7b": Architecture("Llama-2-7B", 4096, 32, 32, 32, 128, 11008, 32000),
    "llama-3-8b": Architecture("Llama-3-8B", 4096, 32, 32, 8, 128, 14336, 128256),
    "mistral-7b": Architecture("Mistral-7B", 4096, 32, 32, 8, 128, 14336, 32000, window=4096),
    "qwen3-8b": Architecture("Qwen3-8B", 4096, 36, 32, 8, 128, 12288, 151936, qk_norm=True),
    "gemma-7b": Architecture("Gemma-7B", 3072, 28, 16, 16, 256, 24576, 256000, tied=True),
    "mixtral-8x7b": Architecture("Mixtral-8x7B", 4096, 32, 32, 8, 128, 14336, 32000, experts=8, top_k=2),
    "deepseek-v3": Architecture(
        *("DeepSeek-V3", 7168, 61, 128, 128, 192, 2048, 129280),
        **{"experts": 256, "top_k": 8, "shared": 1, "dense_layers": 3, "dense_d_ff": 18432, "latent": Latent(1536, 512, 128, 64, 128)},
    ),
}


@dataclass(frozen=True)
class CostResult:
    """Costs of one architecture beside the published ones.

    ``parameters``: part -> count; ``flops`` part -> (contexts,) operations per token; ``intensity`` (batches,). For every published
    configuration and the chosen one: ``names``, ``ratios`` (active d_ff / d_model) and ``per_square`` (parameters that one token
    passes in a layer, over d_model^2: 8 for a plain layer of ratio 4 and for a gated one of ratio 8/3).
    """

    name: str
    total: int
    active: int
    parameters: dict[str, int]
    contexts: np.ndarray
    flops: dict[str, np.ndarray]
    batches: np.ndarray
    intensity: np.ndarray
    names: tuple[str, ...]
    ratios: np.ndarray
    per_square: np.ndarray
    share_of_flops: float
    at: int

    def numbers(self) -> dict[str, Number]:
        """Return totals and shares."""
        of_all = 100 * self.parameters["feed-forward"] / self.total
        return {
            "total": Number("Parameters", self.total / 1e9, None, 2, " B"),
            "active": Number("Of them passed by one token", self.active / 1e9, None, 2, " B"),
            "share": Number("Feed-forward's share of the parameters", of_all, None, 0, " %"),
            "flops_share": Number(f"Its share of the arithmetic at {self.at} tokens", 100 * self.share_of_flops, None, 0, " %"),
        }


def architecture(params: FfnParams) -> Architecture:
    """Return the architecture asked for; raise InputError if more experts are active than there are."""
    if params.shape != "own":
        return ARCHITECTURES[params.shape]
    if params.top_k > params.experts:
        raise InputError(f"{params.top_k} experts per token of {params.experts}; at most all of them can be active.")
    d, d_ff = params.d_model, max(1, round(params.ratio * params.d_model))
    sizes = (OWN_LAYERS, 1, 1, d, d_ff, OWN_VOCABULARY)
    return Architecture("Your own", d, *sizes, gated=params.gated, experts=params.experts, top_k=params.top_k)


@uses("shape", "d_model", "ratio", "gated", "experts", "top_k", "context")
def cost(params: FfnParams, on_step: OnStep = silent) -> CostResult:
    """Return parameters, operations per token and arithmetic intensity of the architecture asked for."""
    asked = architecture(params)
    parts = {
        "feed-forward": asked.feed_forward(),
        "attention": asked.attention(),
        "embeddings": asked.embeddings(),
        "norms": asked.norms(),
    }
    by_context = [asked.flops(context) for context in CONTEXTS]
    flops = {part: frozen(np.array([at[part] for at in by_context])) for part in PARTS}
    here = asked.flops(params.context)
    shown = [*ARCHITECTURES.values(), *([asked] if params.shape == "own" else [])]
    per_square = [(a.top_k + a.shared) * a.expert() / a.d_model**2 for a in shown]
    return CostResult(
        *(asked.label, asked.parameters(), asked.parameters() - asked.feed_forward() + asked.feed_forward(active=True), parts),
        *(frozen(np.array(CONTEXTS)), flops, frozen(np.array(BATCHES)), frozen(asked.intensity(np.array(BATCHES)))),
        *(tuple(a.label for a in shown), frozen(np.array([a.ratio for a in shown])), frozen(np.array(per_square))),
        *(here["feed-forward"] / sum(here.values()), params.context),
    )

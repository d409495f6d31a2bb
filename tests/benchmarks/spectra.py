"""Spectra and composition of all heads of GPT-2's shape against the obvious alternatives, in one process.

Random weights. Each round times every contender once, in turn; medians over rounds. TransformerLens' algorithm is written
here from its description: SVD of both factors, SVD of the core, with vectors, float32; for composition, one orthogonal
factor of each head dropped and every pair multiplied, later or not. What is too slow is timed on a part and scaled up.
"""

import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from statistics import median

import torch

from engine.circuits import Circuits
from engine.composition import composition_scores
from engine.device import CPU_THREADS, parallel_map, symmetric_product, use_all_threads
from engine.gram import grouped_spectra
from engine.linalg import product_singular_values

ROUNDS = 5
GPT2 = {"n_layers": 12, "n_heads": 12, "n_kv_heads": 12, "d": 768, "r": 64}
LLAMA = {"n_layers": 1, "n_heads": 32, "n_kv_heads": 8, "d": 4096, "r": 128}
TL_LAYERS = 1
TL_LEFT_HEADS = 4


def lines() -> Iterator[str]:
    """Yield one line per comparison: ratios, and how they were measured."""
    use_all_threads()
    yield f"spectra: {CPU_THREADS} CPU threads; medians of {ROUNDS} interleaved rounds in one process"
    layers = random_layers(**GPT2)
    yield from spectra_lines(layers)
    yield from composition_lines(layers)
    yield from wide_lines()


def spectra_lines(layers: list[Circuits]) -> Iterator[str]:
    """Yield how singular values of all heads, W_OV and W_QK, compare with SVDs of factors and of whole products."""
    part, head = layers[:TL_LAYERS], [layers[0].of(circuit, 0) for circuit in ("ov", "qk")]
    contenders = {
        "ours": (lambda: ours(layers), 1),
        "tl": (lambda: [factored_svd(*expanded(pair)) for layer in part for pair in (layer.ov, layer.qk)], len(layers) / len(part)),
        "whole": (lambda: [torch.linalg.svdvals(A @ B) for A, B in head], len(layers) * 12),
        "dgemm": (dgemm, 1),
        "floor": (floor(len(layers)), 1),
    }
    times = interleaved(contenders)
    yield f"  144 heads of GPT-2's shape, both circuits: {1e3 * times['ours']:.0f} ms"
    yield f"  against TransformerLens' algorithm in float32 (1 of 12 layers, scaled up): {times['tl'] / times['ours']:.0f} x (target 20)"
    yield f"  against svdvals of the d x d products in float32 (1 head of 144, scaled up): {times['whole'] / times['ours']:.0f} x (target 100)"
    yield f"  share of this machine's double-precision peak: {share(GPT2, times):.0%} (d_head 64)"
    yield f"  Grams of ready float64 factors and eigenvalues of ready cores, without which it cannot be done: {1e3 * times['floor']:.0f} ms"
    exact = torch.stack([product_singular_values(*layers[0].of("ov", h)) for h in range(12)])
    found, theirs = grouped_spectra([layers[0].ov])[0].singular_values, factored_svd(*expanded(layers[0].ov))[1]
    errors = [float(((values - exact).abs() / exact).max()) for values in (found, theirs)]
    yield f"  largest relative error, one layer of W_OV: ours {errors[0]:.0e}, TransformerLens' algorithm {errors[1]:.0e}"


def composition_lines(layers: list[Circuits]) -> Iterator[str]:
    """Yield how Q-, K- and V-composition of all 9504 pairs compares with TransformerLens' algorithm."""
    heads = sum(len(layer.W_O) for layer in layers)
    ov, qk = ([torch.cat(factors) for factors in zip(*(expanded(getattr(layer, c)) for layer in layers), strict=True)] for c in ("ov", "qk"))
    few = [factored_svd(*(X[:TL_LEFT_HEADS] for X in pair)) for pair in (ov, qk)]
    right = torch.randn(heads, GPT2["r"], GPT2["d"])
    contenders = {
        "ours": (lambda: composition_scores(layers), 1),
        "svd": (lambda: [factored_svd(*(X[:12] for X in pair)) for pair in (ov, qk)], 3 * heads / 12),  # anew for each kind
        "pairs": (lambda: all_pairs(right, few[0]), 3 * heads / TL_LEFT_HEADS),
    }
    times = interleaved(contenders, rounds=3)
    ratio = (times["svd"] + times["pairs"]) / times["ours"]
    yield f"  composition of all pairs, three kinds: {times['ours']:.2f} s; against TransformerLens' algorithm in float32"
    yield f"    (SVDs of 12 of {heads} heads, {TL_LEFT_HEADS} x {heads} of {heads} x {heads} pairs of one kind, scaled up): {ratio:.0f} x (target 30)"


def wide_lines() -> Iterator[str]:
    """Yield the share of the peak where heads are wider: one layer of Llama-3-8B's shape."""
    layers = random_layers(**LLAMA)
    times = interleaved({"ours": (lambda: ours(layers), 1), "dgemm": (dgemm, 1)})
    yield f"  one layer of 32 heads on 8, d_model 4096: {1e3 * times['ours']:.0f} ms, {share(LLAMA, times):.0%} of the peak (d_head 128)"


def random_layers(n_layers: int, n_heads: int, n_kv_heads: int, d: int, r: int) -> list[Circuits]:
    """Return float32 heads laid out as a checkpoint stores them: W_O cut from one (d_model, n_heads * d_head) matrix."""
    torch.manual_seed(0)
    draw = lambda *size: 0.02 * torch.randn(*size)  # noqa: E731
    one = lambda: Circuits(draw(d, n_heads, r).transpose(0, 1), draw(n_kv_heads, r, d), draw(n_heads, r, d), draw(n_kv_heads, r, d))  # noqa: E731
    return [one() for _ in range(n_layers)]


def ours(layers: list[Circuits]) -> list:
    """Return the spectra of both circuits of every head, layer by layer as the lab computes them."""
    return [grouped_spectra([layer.ov, layer.qk]) for layer in layers]


def expanded(pair: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return both factors with one right factor per head."""
    A, B = pair
    return A, B.repeat_interleave(len(A) // len(B), 0)


def factored_svd(A: torch.Tensor, B: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the SVD of A B with vectors from three SVDs, as TransformerLens' FactoredMatrix finds it."""
    left, s_left, core_left = torch.linalg.svd(A, full_matrices=False)
    core_right, s_right, right = torch.linalg.svd(B, full_matrices=False)
    U, s, Vh = torch.linalg.svd(s_left[..., None] * (core_left @ core_right) * s_right[..., None, :], full_matrices=False)
    return left @ U, s, Vh @ right


def all_pairs(right: torch.Tensor, left: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Return norms of the products of a few heads with all heads, each without its outer orthogonal factor."""
    U, s, _ = left
    return torch.linalg.matrix_norm(right[None] @ (U * s[:, None, :])[:, None])


def floor(n_layers: int) -> Callable:
    """Return what does both Grams and the eigenvalues of every head of GPT-2's shape, and nothing else, from float64 at rest."""
    factor = torch.randn(GPT2["n_heads"], GPT2["r"], GPT2["d"], dtype=torch.float64)
    core = factor @ factor.mT

    def work(_) -> None:
        for _ in range(2):
            symmetric_product(factor, torch.empty_like(core))
        torch.linalg.eigvalsh(core)

    return lambda: parallel_map(work, range(2 * n_layers))


def share(sizes: dict, times: dict) -> float:
    """Return the time that all multiply-adds (Grams and cores) would take at the peak, over the time taken.

    A Gram counts as the full product X^T X, of which a symmetric product computes one triangle: so a share near 1 is possible.
    """
    d, r, q, kv = sizes["d"], sizes["r"], sizes["n_heads"], sizes["n_kv_heads"]
    flops = sizes["n_layers"] * 2 * ((q + kv) * 2 * d * r**2 + q * 2 * 2 * r**3)
    return flops / (2 * 2048**3 / times["dgemm"]) / times["ours"]


def dgemm() -> torch.Tensor:
    """Return the product that the peak is measured by: 2048 x 2048, double precision, all threads."""
    return _square() @ _square()


@lru_cache(maxsize=1)
def _square() -> torch.Tensor:
    return torch.randn(2048, 2048, dtype=torch.float64)


def interleaved(contenders: dict[str, tuple[Callable, float]], rounds: int = ROUNDS) -> dict[str, float]:
    """Return the median seconds of each contender, times its scale, after one untimed round."""
    seconds = {name: [] for name in contenders}
    for done in range(rounds + 1):
        for name, (function, _) in contenders.items():
            started = time.perf_counter()
            function()
            if done:
                seconds[name].append(time.perf_counter() - started)
    return {name: scale * median(seconds[name]) for name, (_, scale) in contenders.items()}


if __name__ == "__main__":
    for line in lines():
        print(line, flush=True)

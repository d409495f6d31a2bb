"""Fable on its way: the attention weights that were kept while it was trained."""

from collections.abc import Iterator

import numpy as np
from safetensors import safe_open

from engine.models.catalog import ASSETS

FOLDER = ASSETS / "models" / "fable-snapshots"
SNAPSHOT_WEIGHTS = ("W_Q", "W_K", "W_V", "W_O")


def read_snapshots() -> Iterator[tuple[int, int, list[list[np.ndarray]]]]:
    """Yield (step, number of snapshots, weights by layer) in order; each layer W_Q, W_K, W_V, W_O of all heads, float64, (out, in)."""
    files = sorted(FOLDER.glob("step-*.safetensors"))
    for file in files:
        with safe_open(file, "np") as stored:
            names = [name for name in stored.keys() if name.startswith("model.layers.")]  # noqa: SIM118
            numbers = sorted({int(name.split(".")[2]) for name in names})
            get = lambda layer, w, of=stored: of.get_tensor(f"model.layers.{layer}.self_attn.{w}_proj.weight").astype(float)  # noqa: E731
            layers = [[get(layer, w) for w in "qkvo"] for layer in numbers]
        yield int(file.stem.split("-")[1]), len(files), layers

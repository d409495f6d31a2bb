"""Snapshots of a model along its training: attention weights at some steps, and what was recorded when they were taken.

They lie beside the model's own folder, in one called ``<folder>-snapshots``: ``snapshots.json`` and one safetensors file a
step. They hold no embeddings and no MLPs, so no forward pass can be run on them.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from engine.errors import ModelError
from engine.models.catalog import find
from engine.models.families import FAMILIES
from engine.models.files import open_file, read_json
from engine.models.weights import LayerHeads, check_finite, layer_heads, model_shape


def snapshot_records(model: str) -> list[dict]:
    """Return the records of a model's snapshots in the order of their steps; raise ModelError if it has none."""
    path = _folder(model) / "snapshots.json"
    try:
        return sorted(json.loads(path.read_text(encoding="utf-8")), key=lambda record: record["step"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ModelError(f"{path.name} of {path.parent.name} cannot be read: {str(error)[:120].rstrip('.')}.") from error


def read_snapshot(model: str, step: int) -> Iterator[LayerHeads]:
    """Yield the heads of every layer as they were at a step, in order; nothing of it is kept."""
    shape = model_shape(model)
    path = _folder(model) / f"step-{step:06d}.safetensors"
    if not path.is_file():
        raise ModelError(f"{model} has no snapshot of step {step}.")
    with open_file(path, FAMILIES[shape.family].prefix) as get:
        for layer in range(shape.n_layers):
            heads = layer_heads(shape, get, layer)
            check_finite(heads, layer)
            yield heads


def training_day(model: str) -> str:
    """Return the day on which the training was recorded, as year-month-day, or "" where it is not known."""
    path = _folder(model).parent / _folder(model).name.removesuffix("-snapshots") / "training.json"
    return str(read_json(path).get("recorded", "")) if path.is_file() else ""


def _folder(model: str) -> Path:
    place = find(model)
    folder = place.parent / f"{place.name}-snapshots" if isinstance(place, Path) else None
    if folder is None or not folder.is_dir():
        raise ModelError(f"{model[:80]} comes without snapshots of its training; fable has them.")
    return folder

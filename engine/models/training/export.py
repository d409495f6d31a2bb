"""From a finished training run to what the project ships: model, snapshots along the way, measurements, model card.

    python -m engine.models.training.export --text FOLDER --work WORK --out assets/models

Everything in the card is measured on the files as shipped (float16, loaded in float32).
"""

import argparse
import gzip
import json
import lzma
import platform
import shutil
from dataclasses import asdict
from datetime import date
from pathlib import Path

import numpy as np
import torch

from engine.device import compute_device
from engine.models.behaviour import bits_per_byte, copying_accuracy, head_scores, token_losses
from engine.models.training.card import card
from engine.models.training.loop import Recipe, new_model
from engine.models.training.text import encode, read_books

SNAPSHOTS = 10
REPEATS = (16, 25, 50, 100)
LENGTHS = (1.0, 1.5, 2.0, 4.0)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m engine.models.training.export", description=__doc__)
    for name in ("text", "work", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    options = parser.parse_args()
    model_folder, snapshot_folder = options.out / "fable", options.out / "fable-snapshots"
    log = [json.loads(line) for line in (options.work / "log.jsonl").read_text().splitlines()]
    recipe = Recipe(**json.loads((options.work / "recipe.json").read_text()))
    write_model(options.work, recipe, model_folder)
    write_snapshots(options.work, log, snapshot_folder)
    measured = measure(model_folder, options.text, recipe)
    training = {
        "recorded": date.today().isoformat(),
        "hardware": hardware(),
        "torch": torch.__version__,
        "hours": round(log[-1]["seconds"] / 3600, 2),
        "parameters": sum(p.numel() for p in new_model(recipe).parameters()),
        "recipe": asdict(recipe),
        "measured": measured,
        "log": [{k: r[k] for k in ("step", "seconds", "train", "held_out", "copying")} for r in log],
    }
    (model_folder / "training.json").write_text(json.dumps(training, indent=1) + "\n")
    (model_folder / "README.md").write_text(card(training))


def write_model(work: Path, recipe: Recipe, folder: Path) -> None:
    """Write config, float16 weights and tokenizer as transformers loads them."""
    model = new_model(recipe)
    model.load_state_dict(torch.load(work / "state.pt", map_location="cpu", weights_only=True)["model"])
    shutil.rmtree(folder, ignore_errors=True)
    model.half().save_pretrained(folder)
    for path in (work / "tokenizer").iterdir():
        shutil.copyfile(path, folder / path.name)


def write_snapshots(work: Path, log: list[dict], folder: Path) -> None:
    """Copy about ten snapshots, dense around the jump of copying, and what was recorded at each."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    chosen = [log[i] for i in choose(np.array([r["step"] for r in log]), np.array([r["copying"] for r in log]), SNAPSHOTS)]
    for record in chosen:
        name = f"step-{record['step']:06d}.safetensors"
        shutil.copyfile(work / name, folder / name)
    (folder / "snapshots.json").write_text(json.dumps(chosen, indent=1) + "\n")


def choose(steps: np.ndarray, copying: np.ndarray, count: int) -> list[int]:
    """Return the indices of ``count`` records spread evenly along the curve of copying accuracy over log steps.

    Two thirds of the length of the curve is accuracy, so most of them fall where it jumps; first and last are kept.
    """
    along = np.log(steps + 50.0)
    length = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(along)) / np.ptp(along) + 2 * np.abs(np.diff(copying)))])
    for points in range(count, 10 * count):  # where the curve is steep, several points may fall on one record
        chosen = sorted({int(np.abs(length - wanted).argmin()) for wanted in np.linspace(0, length[-1], points)})
        if len(chosen) >= min(count, len(steps)):
            break
    return chosen


def measure(folder: Path, text: Path, recipe: Recipe) -> dict:
    """Return what the shipped files do: copying, heads, bits per byte beside gzip and xz, loss beyond the context."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    scores = [head_scores(model, repeat_length=50, n_sequences=8, seed=seed) for seed in range(4)]
    books = "\n\n".join(read_books(text, held_out=True).values())
    tokens, raw = encode(AutoTokenizer.from_pretrained(folder), books), books.encode()
    model.set_attn_implementation("sdpa")
    loss = float(token_losses(model, tokens, recipe.context).mean())
    return {
        "copying_accuracy": {str(n): round(copying_accuracy(model, n, n_sequences=256, seed=1), 4) for n in REPEATS},
        "prefix_matching": np.mean([s.prefix_matching for s in scores], axis=0).round(3).tolist(),
        "previous_token": np.mean([s.previous_token for s in scores], axis=0).round(3).tolist(),
        "held_out_bits_per_byte": round(bits_per_byte(loss, len(tokens), len(raw)), 4),
        "gzip_9_bits_per_byte": round(8 * len(gzip.compress(raw, 9)) / len(raw), 4),
        "xz_9_bits_per_byte": round(8 * len(lzma.compress(raw, preset=9)) / len(raw), 4),
        "nats_per_token_by_length": {f"{x:g}x": by_length(model, tokens, int(x * recipe.context)) for x in LENGTHS},
    }


def by_length(model, tokens: np.ndarray, length: int) -> dict:
    """Return mean nats per token over windows of a length, and over their last 128 positions, plain RoPE."""
    losses = token_losses(model, tokens, length, max_windows=48, batch_size=4)
    return {"all": round(float(losses.mean()), 4), "last_128": round(float(losses[:, -128:].mean()), 4), "windows": len(losses)}


def hardware() -> str:
    """Return what the numbers were computed on, in words."""
    return f"{compute_device().label} ({platform.machine()})"


if __name__ == "__main__":
    main()

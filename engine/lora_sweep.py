"""Make the sweep that the page shows as recorded: Fable learns Shakespeare at seven ranks and in full, three seeds each.

    python -m engine.lora_sweep --work WORK --steps 640

goes rank by rank and keeps each in WORK, so that run again it goes on; at the end it writes what is shipped to
``assets/data/fable-learns-shakespeare/``: ``sweep.json``, and the adapter of rank 8 in peft's format.
"""

import argparse
import json
import os
import platform
import time
from dataclasses import asdict
from datetime import date
from pathlib import Path

import torch

from engine.lora_fable import FULL, Recipe, read_text, train, written
from engine.lora_spectra import update_spectra
from engine.models.adapters import SETS, Update, places_of
from engine.models.catalog import ASSETS
from engine.models.loading import open_model
from engine.models.peft_files import Adapter, write_adapter
from engine.params import plain
from engine.progress import console

ORDER = (FULL, 1, 64, 8, 2, 16, 4, 32)
SEEDS = (0, 1, 2)
SHIPPED_RANK = 8
FOLDER = ASSETS / "data" / "fable-learns-shakespeare"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m engine.lora_sweep", description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="folder for the state to go on from")
    parser.add_argument("--steps", type=int, default=Recipe.steps)
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.work.mkdir(parents=True, exist_ok=True)
    recipe = Recipe(steps=options.steps, measure_every=max(1, options.steps // 8), bfloat16=True)
    for rank in ORDER:
        path = options.work / f"rank-{rank}.json"
        if not path.exists():
            record = one_rank(recipe, rank, options.work)
            path.write_text(json.dumps(plain(record)))
            print(f"rank {rank or 'full'}: verse {record['verse'][-1]}, prose {record['prose'][-1]}, {record['seconds']} s", flush=True)
        write_sweep(recipe, options)


def one_rank(recipe: Recipe, rank: int, work: Path) -> dict:
    """Return what is recorded of one rank: losses on the way by seed, a sample, the spectra of the first seed's update."""
    started = time.perf_counter()
    done = train(recipe, [(rank, seed) for seed in SEEDS], console)
    first = {name: of_member(update, 0) for name, update in done.updates.items()}
    layers = places_of(open_model("fable"), SETS[recipe.places])
    spectra = update_spectra({name: (layers[name].weight, update.update()[0].detach()) for name, update in first.items()})
    if rank == SHIPPED_RANK:
        modules = {name: (u.A[0], u.B[0]) for name, u in first.items()}
        write_adapter(Adapter("fable", rank, recipe.alpha, recipe.rule == "rslora", modules), work / "adapter")
    return {
        "rank": rank,
        "steps": done.steps,
        "verse": done.verse.round(5),
        "prose": done.prose.round(5),
        "trainable_parameters": sum(t[0].numel() for u in first.values() for t in vars(u).values() if t.dim() == 3),
        "sample": written(first, 1)[0],
        "modules": [m.name for m in spectra],
        "spectra": [[float(f"{v:.5g}") for v in m.singular_values[: rank or None]] for m in spectra],
        "alignment": [round(m.alignment, 5) for m in spectra],
        "seconds": round(time.perf_counter() - started),
    }


def of_member(update: Update, m: int) -> Update:
    """Return one member's update, still with a leading axis of one."""
    return type(update)(**{name: t[m : m + 1].detach() for name, t in vars(update).items()})


def write_sweep(recipe: Recipe, options: argparse.Namespace) -> None:
    """Write what is there so far, ranks in ascending order, full fine-tuning (rank 0) apart."""
    runs = [json.loads((options.work / f"rank-{rank}.json").read_text()) for rank in sorted(ORDER) if (options.work / f"rank-{rank}.json").exists()]
    text = read_text(recipe)
    whole = {
        "recorded": date.today().isoformat(),
        "hardware": f"{options.threads} thread(s) of {os.cpu_count()} virtual cores ({platform.machine()}), shared with other work",
        "torch": torch.__version__,
        "recipe": asdict(recipe),
        "seeds": SEEDS,
        "tokens_of_verse": len(text.learnt),
        "tokens_read_by_each": recipe.steps * recipe.rows * recipe.context,
        "seconds": sum(run["seconds"] for run in runs),
        "before": written({}, 1)[0],
        "runs": runs,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "sweep.json").write_text(json.dumps(plain(whole)) + "\n")
    if (options.work / "adapter").exists():
        for path in (options.work / "adapter").iterdir():
            (options.out / path.name).write_bytes(path.read_bytes())


if __name__ == "__main__":
    main()

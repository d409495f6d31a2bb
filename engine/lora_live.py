"""Fable learns Shakespeare on the page: the recorded sweep, and a small run of one's own over it."""

import json
import time
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from engine.errors import InputError
from engine.lora_fable import Progress, Recipe, train, written
from engine.lora_merge import SHIPPED
from engine.lora_params import LoraParams, parse_ranks
from engine.lora_spectra import UpdateSpectrum, spectrum_of
from engine.models.adapters import PLACES, SETS, LowRank, Update, places_of
from engine.models.loading import open_model
from engine.models.peft_files import Adapter, short_name
from engine.params import Number, frozen, uses
from engine.progress import OnStep, offer, silent
from engine.settings import settings

RUN = ("places", "fable_ranks", "fable_seeds", "fable_steps", "rule", "alpha")
MINUTE = 60.0


@dataclass(frozen=True)
class RecordedSweep:
    """The sweep that comes with the lab. ``steps`` (T,), ``ranks`` (R,); nats per token on held-out verse and on prose: (R, S, T).

    ``full_verse``, ``full_prose`` (S, T). ``samples``: rank (0: full) -> what the first seed writes; ``before``: Fable itself.
    ``spectra``: the whole update of full fine-tuning, module by module; ``recipe``, ``recorded``, ``hardware``: how it was made.
    ``slope``: mean change of the loss on verse over the last interval measured, LoRA and full alike.
    """

    steps: np.ndarray
    ranks: np.ndarray
    verse: np.ndarray
    prose: np.ndarray
    full_verse: np.ndarray
    full_prose: np.ndarray
    trainable_parameters: np.ndarray
    full_parameters: int
    samples: dict[int, str]
    before: str
    spectra: tuple[UpdateSpectrum, ...]
    recipe: dict
    recorded: str
    hardware: str
    seconds: int
    tokens_of_verse: int
    tokens_read_by_each: int
    slope: float

    def rows(self) -> list[list]:
        """Return (rank, seed, last loss on verse, on prose) of every member; full fine-tuning last."""
        verse, prose = (np.concatenate([getattr(self, what), getattr(self, f"full_{what}")[None]])[..., -1] for what in ("verse", "prose"))
        members = np.ndindex(verse.shape)
        return [[[*map(int, self.ranks), "full"][i], s, float(verse[i, s]), float(prose[i, s])] for i, s in members]


@uses()
def recorded_sweep(params: LoraParams, on_step: OnStep = silent) -> RecordedSweep:
    """Return the recorded sweep from the lab's data; nothing is trained."""
    return _recorded()


@lru_cache(maxsize=1)
def _recorded() -> RecordedSweep:
    data = json.loads((SHIPPED / "sweep.json").read_text())
    low, full = [run for run in data["runs"] if run["rank"]], next(run for run in data["runs"] if run["rank"] == 0)
    curves = lambda run, what: np.array(run[what]).T  # noqa: E731
    ends = np.array([curves(run, "verse")[:, -2:] for run in data["runs"]])
    shapes = _shapes(data["recipe"]["places"])
    spectra = [
        spectrum_of(name, np.array(values), shapes[name], aligned)
        for name, values, aligned in zip(full["modules"], full["spectra"], full["alignment"], strict=True)
    ]
    return RecordedSweep(
        frozen(np.array(full["steps"])),
        frozen(np.array([run["rank"] for run in low])),
        *(frozen(np.array([curves(run, what) for run in low])) for what in ("verse", "prose")),
        *(frozen(curves(full, what)) for what in ("verse", "prose")),
        frozen(np.array([run["trainable_parameters"] for run in low])),
        full["trainable_parameters"],
        {run["rank"]: run["sample"] for run in data["runs"]},
        data["before"],
        tuple(spectra),
        data["recipe"],
        data["recorded"],
        data["hardware"],
        data["seconds"],
        data["tokens_of_verse"],
        data["tokens_read_by_each"],
        float((ends[..., 1] - ends[..., 0]).mean()),
    )


def _shapes(places: str) -> dict[str, tuple[int, int]]:
    return {short_name(name): tuple(layer.weight.shape) for name, layer in places_of(open_model("fable"), SETS[places]).items()}


@dataclass(frozen=True)
class FableResult:
    """A live run so far: ``steps`` (T,), ``verse`` and ``prose`` (R, S, T) nats per token; ``ranks`` (R,), ``steps_asked``.

    ``before`` and ``after``: what Fable writes without and with the first member's adapter, ``adapter``; empty and None until the end.
    """

    steps: np.ndarray
    steps_asked: int
    ranks: np.ndarray
    verse: np.ndarray
    prose: np.ndarray
    before: str = ""
    after: str = ""
    adapter: Adapter | None = None

    def numbers(self) -> list[Number]:
        """Return the last losses of the first rank, mean over seeds, beside those before training."""
        last = [float(values[0, :, -1].mean()) for values in (self.verse, self.prose)]
        first = [float(values[0, :, 0].mean()) for values in (self.verse, self.prose)]
        names = [f"Nats on {what}, rank {self.ranks[0]}" for what in ("verse", "prose")]
        return [Number(name, now, None, 3, "", then) for name, now, then in zip(names, last, first, strict=True)]


@uses(*RUN)
def fable_run(params: LoraParams, on_step: OnStep = silent) -> FableResult:
    """Return adapters of the ranks and seeds asked for, trained together on the verse; offers what it has at every measurement.

    Raises InputError for more adapters than the operator allows.
    """
    if too_many(params):
        raise InputError(too_many(params))
    ranks = parse_ranks(params.fable_ranks)
    members = [(rank, seed) for rank in ranks for seed in range(params.fable_seeds)]
    recipe = recipe_of(params)
    done = train(recipe, members, on_step, lambda progress: offer(on_step, lambda: _live(params, ranks, progress)))
    first = {name: of_first(update) for name, update in done.updates.items()}
    modules = {name: (u.A[0, : ranks[0]].cpu(), u.B[0, :, : ranks[0]].cpu()) for name, u in first.items()}
    adapter = Adapter("fable", ranks[0], params.alpha, params.rule == "rslora", modules)
    return _live(params, ranks, done, before=written({}, 1)[0], after=written(first, 1)[0], adapter=adapter)


def recipe_of(params: LoraParams) -> Recipe:
    """Return the recipe of a live run: as recorded, but shorter, in float32 and on the modules asked for."""
    every = max(1, params.fable_steps // 5)
    return Recipe(params.places, params.alpha, params.rule, steps=params.fable_steps, measure_every=every)


def of_first(update: Update) -> LowRank:
    """Return the first member's adapter alone."""
    return LowRank(*(t[:1].detach() for t in vars(update).values()))


def _live(params: LoraParams, ranks: tuple[int, ...], progress: Progress, **more) -> FableResult:
    shaped = lambda values: frozen(values.T.reshape(len(ranks), params.fable_seeds, -1).copy())  # noqa: E731
    steps = frozen(np.array(progress.steps))
    return FableResult(steps, params.fable_steps, frozen(np.array(ranks)), shaped(progress.verse), shaped(progress.prose), **more)


@uses("places")
def seconds_per_step(params: LoraParams, on_step: OnStep = silent) -> float:
    """Return how long one member takes for one step here and now: a forward and a backward pass, timed once after a warm-up."""
    recipe = Recipe(params.places, steps=1, measure_every=1, windows=1)
    times = []
    for _ in range(2):
        started = time.perf_counter()
        train(recipe, [(8, 0)])
        times.append(time.perf_counter() - started)
    return min(times) / (1 + 2 * 2 / 3 / recipe.rows)  # two measurements of two windows are a third as dear as rows of a step


def too_many(params: LoraParams) -> str:
    """Return the sentence that refuses a run of more adapters than the operator allows, with what fits; empty for a run that is allowed."""
    ranks, most = len(parse_ranks(params.fable_ranks)), settings().sweep
    if ranks * params.fable_seeds <= most:
        return ""
    fitting = f"{most // ranks} of each rank" if most >= ranks else f"{most} ranks"
    return f"{ranks * params.fable_seeds} adapters are more than the {most} that are trained at once here; {fitting} would fit."


def fits(params: LoraParams, seconds: float) -> str:
    """Return in words how long the run asked for would take, and what fits into a minute."""
    members = len(parse_ranks(params.fable_ranks)) * params.fable_seeds
    measured = 6 * 2 * 8 / (3 * 2)  # six measurements on 16 windows, in steps of two rows
    needed = members * (params.fable_steps + measured) * seconds
    steps = max(0, int(MINUTE / (members * seconds) - measured))
    asked = f"{members} adapter{'s' if members > 1 else ''} over {params.fable_steps} steps"
    return f"{asked}: about {needed:.0f} s here and now; into a minute fit about {steps} steps."


def module_types(recipe: dict) -> str:
    """Return the modules of a recipe in words."""
    return ", ".join(PLACES[name] for name in SETS[recipe["places"]])


def has_flattened(result: RecordedSweep) -> bool:
    """Return whether the loss on verse still moves by less than 0.01 nats between the last two measurements."""
    return abs(result.slope) < 0.01

"""What rank does this change need? Students of every rank and several seeds learn from one linear teacher, all at once.

Members are padded with zeros to the highest rank and trained as one batch: gradients of padded rows vanish and AdamW works
element by element, so they stay zero and no mask is needed. Start, data order and optimizer are those of peft with torch's
AdamW (betas 0.9, 0.999, no weight decay, rate falling linearly to 0), one adapter at a time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from engine.adapters import generator, scaling_of, start_factors
from engine.device import compute_device, parallel_map
from engine.errors import InputError
from engine.lora_params import LoraParams
from engine.lora_spectra import alignment
from engine.models.adapters import Dense, LowRank, Update
from engine.params import Number, frozen, uses
from engine.progress import OnStep, offer, silent
from engine.teacher import Teacher, by_chance, cut_of_M, floors, pissa_floors, teacher_of

MOST_GFLOP = 1000.0
DIVERGED = 10.0
"""A member whose loss exceeds ten times that before training has diverged: it is shown as such and left out from there on."""

TRAINING = ("task", "teacher_rank", "inputs", "rule", "start", "d_in", "d_out", "n_seeds", "steps", "learning_rate", "alpha", "batch", "seed")
SWEEP = (*TRAINING, "max_rank")


@dataclass(frozen=True)
class SweepResult:
    """Losses as shares of the loss before training. R ranks, S seeds, ``steps_done`` = T steps, n = min(d_in, d_out).

    ``loss`` (R, S, T + 1), ``full_loss`` (S, T + 1): expected loss before training and after each step; NaN once diverged.
    ``batch_loss`` (R, S, T), ``full_batch_loss`` (S, T): what the optimizer saw. ``floor`` (R,): the least that any update of
    that rank reaches; ``cut_of_M``: what M's own truncation reaches; ``by_chance``: with r random directions of the input and B
    free. ``full_singular_values`` (S, n) of the whole update learnt, ``full_alignment`` (S,) with W's top directions,
    ``update_size`` (R, S): |s B A|_F; ``teacher_singular_values`` (n,). ``steps``: how many were asked for.
    """

    ranks: np.ndarray
    seeds: np.ndarray
    steps: int
    steps_done: int
    loss: np.ndarray
    full_loss: np.ndarray
    batch_loss: np.ndarray
    full_batch_loss: np.ndarray
    floor: np.ndarray
    cut_of_M: np.ndarray
    by_chance: np.ndarray
    trainable_parameters: np.ndarray
    full_parameters: int
    update_size: np.ndarray
    full_singular_values: np.ndarray
    full_alignment: np.ndarray
    teacher_singular_values: np.ndarray

    @property
    def diverged(self) -> list[tuple[int, int]]:
        """(rank, seed) of every member that diverged; rank 0 is full fine-tuning."""
        lost = [(int(self.ranks[i]), int(self.seeds[s])) for i, s in np.argwhere(np.isnan(self.loss[..., -1]))]
        return lost + [(0, int(self.seeds[s])) for s in np.flatnonzero(np.isnan(self.full_loss[:, -1]))]

    def final(self) -> np.ndarray:
        """Return the mean over seeds of the last loss of each rank, (R,)."""
        return _mean(self.loss[..., -1])


@dataclass(frozen=True)
class Members:
    """Updates trained together: ``seed`` (members,) picks each one's data, ``offset`` is what was taken out of W at the start."""

    update: Update
    seed: torch.Tensor
    offset: Update | None = None

    def leaves(self) -> list[torch.Tensor]:
        """Return the tensors that are trained."""
        return [t for t in vars(self.update).values() if getattr(t, "requires_grad", False)]

    def whole(self) -> torch.Tensor:
        """Return the change of W since before the start, (members, d_out, d_in)."""
        return self.update.update() - (0 if self.offset is None else self.offset.update())


@uses(*SWEEP)
def sweep(params: LoraParams, on_step: OnStep = silent) -> SweepResult:
    """Return every rank and full fine-tuning, several seeds each, trained at once; raise InputError for a sweep that is too large."""
    check_size(params)
    return alone(lambda: _sweep(params, on_step))


def alone(work: Callable):
    """Return work(), done by one thread: products of this size take up to ten times as long when threads wait for each other."""
    return parallel_map(lambda _: work(), [0])[0]


def _sweep(params: LoraParams, on_step: OnStep) -> SweepResult:
    teacher = teacher_of(params)
    groups = [low_rank_members(params, params.ranks, teacher.W), full_members(params)]
    known, expected, batches = _known(params, teacher), [], []
    so_far = lambda: _result(params, teacher, groups, expected, batches, known)  # noqa: E731
    for step, losses in enumerate(train(params, teacher, groups)):
        expected.append(losses[0])
        batches += [losses[1]] if losses[1] is not None else []
        on_step(step, params.steps, "Training all ranks and seeds at once")
        if step % max(1, params.steps // 20) == 0 and step < params.steps:
            offer(on_step, so_far)
    return so_far()


def low_rank_members(params: LoraParams, ranks: Sequence[int], W: np.ndarray) -> Members:
    """Return one member per rank and seed, rank by rank, padded to the highest rank."""
    W, device, S = torch.tensor(W), compute_device().name, params.n_seeds
    A, B = torch.zeros(len(ranks) * S, max(ranks), params.d_in), torch.zeros(len(ranks) * S, params.d_out, max(ranks))
    for m, (rank, s) in enumerate((rank, s) for rank in ranks for s in range(S)):
        scaling = scaling_of(params.rule, params.alpha, rank)
        A[m, :rank], B[m, :, :rank] = start_factors(params.start, W, rank, scaling, (params.seed + s, rank))
    scaling = torch.tensor([scaling_of(params.rule, params.alpha, rank) for rank in ranks for _ in range(S)], device=device)
    A, B = A.to(device), B.to(device)
    offset = LowRank(A.clone(), B.clone(), scaling) if params.start == "pissa" else None
    seed = torch.arange(S, device=device).repeat(len(ranks))
    return Members(LowRank(A.requires_grad_(), B.requires_grad_(), scaling), seed, offset)


def full_members(params: LoraParams) -> Members:
    """Return full fine-tuning, one member per seed, as a difference from W that starts at 0."""
    device = compute_device().name
    D = torch.zeros(params.n_seeds, params.d_out, params.d_in, device=device).requires_grad_()
    return Members(Dense(D), torch.arange(params.n_seeds, device=device))


def train(params: LoraParams, teacher: Teacher, groups: Sequence[Members], measure: bool = True):
    """Yield (expected losses, batch losses of the step just done or None) before training and after each step.

    Each is a list with one array (members,) per group; without ``measure`` the expected losses are left out.
    The mean squared error of a member is over its batch and outputs.
    """
    device = compute_device().name
    M, deviation = (torch.tensor(a).float().to(device) for a in (teacher.M, teacher.deviation))
    optimizer = torch.optim.AdamW([leaf for group in groups for leaf in group.leaves()], lr=params.learning_rate, weight_decay=0.0)
    sources = [generator((params.seed + s, 7)) for s in range(params.n_seeds)]
    measured = lambda: [_expected(group, M, deviation) for group in groups] if measure else None  # noqa: E731
    yield measured(), None
    for step in range(params.steps):
        X = torch.stack([torch.randn(params.batch, params.d_in, generator=source) for source in sources]).to(device) * deviation
        Y = X @ M.mT
        losses = [member_losses(group, X[group.seed], Y[group.seed]) for group in groups]
        for group in optimizer.param_groups:
            group["lr"] = params.learning_rate * (1 - step / params.steps)
        optimizer.zero_grad(set_to_none=True)
        sum(loss.sum() + group.update.penalty() for loss, group in zip(losses, groups, strict=True)).backward()
        optimizer.step()
        for group in groups:
            group.update.settle(step + 1)
        yield measured(), [loss.detach().cpu().numpy() for loss in losses]


def member_losses(group: Members, X: torch.Tensor, Y: torch.Tensor) -> torch.Tensor:
    """Return each member's mean squared error, (members,), for inputs X (members, n, d_in) and what M adds, Y (members, n, d_out)."""
    start = -Y if group.offset is None else -group.offset.added(X, Y)
    return group.update.added(X, start).square().mean((1, 2))


@torch.no_grad()
def _expected(group: Members, M: torch.Tensor, deviation: torch.Tensor) -> np.ndarray:
    return ((group.whole() - M) * deviation).square().sum((1, 2)).div(len(M)).cpu().numpy()


def _known(params: LoraParams, teacher: Teacher) -> dict[str, np.ndarray]:
    """Return what is known of each rank before any training."""
    return {
        "ranks": np.array(params.ranks),
        "seeds": params.seed + np.arange(params.n_seeds),
        "floor": pissa_floors(teacher, params.ranks) if params.start == "pissa" else floors(teacher, params.ranks),
        "cut_of_M": cut_of_M(teacher, params.ranks),
        "by_chance": by_chance(teacher, params.ranks, params.seed),
        "trainable_parameters": np.array(params.ranks) * (params.d_in + params.d_out),
        "teacher_singular_values": np.linalg.svd(teacher.M, compute_uv=False),
    }


def _result(params: LoraParams, teacher: Teacher, groups: Sequence[Members], expected: list, batches: list, known: dict) -> SweepResult:
    ranks, S, done = params.ranks, params.n_seeds, len(batches)
    loss, full = (_until_diverged(np.stack([row[g] for row in expected], axis=-1)) for g in (0, 1))
    batch, full_batch = (np.stack([row[g] for row in batches], axis=-1) if batches else np.zeros((len(expected[0][g]), 0)) for g in (0, 1))
    D = groups[1].whole().detach().double().cpu()
    D = torch.where(D.isfinite(), D, 0.0)
    W, shaped = torch.tensor(teacher.W), lambda a: a.reshape(len(ranks), S, -1)
    arrays = known | {
        "loss": shaped(loss),
        "full_loss": full,
        "batch_loss": shaped(batch),
        "full_batch_loss": full_batch,
        "update_size": groups[0].whole().detach().norm(dim=(1, 2)).cpu().numpy().reshape(len(ranks), S),
        "full_singular_values": torch.linalg.svdvals(D).numpy(),
        "full_alignment": np.array([alignment(W, d) for d in D]),
    }
    return SweepResult(
        steps=params.steps, steps_done=done, full_parameters=params.d_in * params.d_out, **{name: frozen(values) for name, values in arrays.items()}
    )


def _until_diverged(loss: np.ndarray) -> np.ndarray:
    """Return losses (members, T) with NaN from the first that is not finite or above ten times the start."""
    lost = ~(loss <= DIVERGED * loss[:, :1])
    return np.where(np.maximum.accumulate(lost, axis=1), np.nan, loss)


def _mean(values: np.ndarray) -> np.ndarray:
    """Return the mean over the last axis of what is finite; NaN where nothing is."""
    kept = np.isfinite(values)
    return np.where(kept.any(-1), np.where(kept, values, 0).sum(-1) / np.maximum(kept.sum(-1), 1), np.nan)


def gflop_of(params: LoraParams) -> float:
    """Return roughly how many billion multiplications and additions a sweep takes."""
    d, r, n, members = params.d_in + params.d_out, max(params.ranks), params.batch, params.n_seeds * len(params.ranks)
    square = params.d_in * params.d_out
    one_step = members * (6 * n * r * d + 2 * r * square) + params.n_seeds * 8 * n * square
    return one_step * params.steps / 1e9


def check_size(params: LoraParams) -> None:
    """Raise InputError for a sweep above 1000 GFlop, saying how many steps fit."""
    needed = gflop_of(params)
    if needed > MOST_GFLOP:
        fits = int(params.steps * MOST_GFLOP / needed)
        asked = f"{params.d_out} x {params.d_in} with {params.n_seeds} seeds, batches of {params.batch} and {params.steps} steps"
        raise InputError(f"A sweep of {asked} takes about {needed:.0f} GFlop; at most {MOST_GFLOP:.0f} are computed: {fits} steps would fit.")


def numbers_at(result: SweepResult, rank: int) -> list[Number]:
    """Return what the first screen says of one rank: loss, floor, trainable parameters; the nearest rank of the sweep stands for it."""
    i = nearest(result, rank)
    at, of_all = f"rank {result.ranks[i]}", 100 * result.trainable_parameters[i] / result.full_parameters
    full = float(_mean(result.full_loss[:, -1]))
    return [
        Number(f"Error left at {at}", 100 * float(result.final()[i]), 100 * float(result.by_chance[i]), 1, " %"),
        Number(f"Least that {at} can leave", round(100 * float(result.floor[i]), 6), None, 1, " %"),
        Number("Full fine-tuning leaves", 100 * full, None, 2, " %"),
        Number(f"Trainable, of {result.full_parameters:,}", float(result.trainable_parameters[i]), None, 0, f" ({of_all:.1f} %)"),
    ]


def nearest(result: SweepResult, rank: int) -> int:
    """Return the index of the sweep's rank nearest to one."""
    return int(np.abs(np.log2(result.ranks) - np.log2(rank)).argmin())


def report(params: LoraParams, on_step: OnStep = silent) -> SweepResult:
    """Return the sweep for the command line."""
    return sweep(params, on_step)


def table(result: SweepResult) -> tuple[list[str], list[list]]:
    """Return header and rows: each rank's last loss (mean, then by seed) beside its floor, M's own cut and chance; then full fine-tuning."""
    seeds = [f"loss_seed_{seed}" for seed in result.seeds]
    header = ["rank", "loss", *seeds, "floor", "cut_of_M", "by_chance", "trainable_parameters", "diverged"]
    lost, last = [rank for rank, _ in result.diverged], result.loss[..., -1]
    known = zip(result.floor, result.cut_of_M, result.by_chance, strict=True)
    rows = [
        [int(rank), float(mean), *map(float, by_seed), *map(float, of_rank), int(count), lost.count(int(rank))]
        for rank, mean, by_seed, of_rank, count in zip(result.ranks, result.final(), last, known, result.trainable_parameters, strict=True)
    ]
    full = result.full_loss[:, -1]
    return header, [*rows, ["full", float(_mean(full)), *map(float, full), 0.0, 0.0, 0.0, result.full_parameters, lost.count(0)]]

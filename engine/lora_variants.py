"""Variants of LoRA at one rank on the same teacher, trained together; and how large the first step is at every rank."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from engine.adalora import budgeted
from engine.adapters import RULES, generator
from engine.device import compute_device
from engine.lora import TRAINING, Members, alone, low_rank_members, train
from engine.lora_params import LoraParams
from engine.models.adapters import Dense, LowRank
from engine.nf4 import nf4
from engine.params import frozen, uses
from engine.progress import OnStep, silent
from engine.teacher import floors, pissa_floors, teacher_of

VARIANTS = {
    "plain": "s = alpha / r, A uniform, B = 0",
    "rslora": "s = alpha / sqrt(r): the update does not shrink as the rank grows",
    "gaussian": "A Gaussian with deviation 1 / r, B = 0",
    "pissa": "starts on the top r directions of W, which leave the frozen weight",
    "orthogonal": "A and B both start non-zero, on orthogonal halves, so B A = 0 (even ranks)",
    "zeros": "A = B = 0: each factor's gradient is a product with the other, so neither ever moves",
    "dropout": "drops inputs of A at random while training",
    "dora": "direction from W + s B A, length of each row trained apart",
    "adalora": "P Lambda Q, half as many directions again at first; the least important are cut",
    "nf4": "W is kept in 4 bits; the adapter must mend that error as well",
}


@dataclass(frozen=True)
class Dora(LowRank):
    """DoRA (Liu et al. 2024, arXiv 2402.09353): rows of W + s B A divided by their norm, held constant in the gradient, times m."""

    magnitude: torch.Tensor
    W: torch.Tensor

    def update(self) -> torch.Tensor:
        """Return m (W + s B A) / |W + s B A|_row - W, (members, d_out, d_in)."""
        V = self.W + super().update()
        return (self.magnitude / V.detach().norm(dim=-1))[..., None] * V - self.W

    def added(self, x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Return out + update x."""
        return torch.baddbmm(out, x, self.update().mT)


@dataclass(frozen=True)
class Dropped(LowRank):
    """LoRA whose adapter sees x with a share of its entries dropped and the rest scaled up."""

    share: float
    source: torch.Generator

    def added(self, x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Return out + s B A dropout(x)."""
        kept = (torch.rand(x.shape, generator=self.source) >= self.share).to(x)
        return super().added(x * kept / (1 - self.share), out)


@dataclass(frozen=True)
class VariantsResult:
    """Each variant by name: mean and seeds of its last loss, (V,) and (V, S), its size |update|_F (V,), and loss on the way (V, T + 1).

    ``floor`` of the rank, ``pissa_floor`` from PiSSA's start; ``nf4_floor``: the least that any rank-r update leaves when the
    4-bit error must be mended too;
    ``nf4_error``: |W - W_4|_F / |W|_F, ``nf4_before``: the loss before training on the 4-bit base, which has both.
    """

    rank: int
    names: tuple[str, ...]
    last: np.ndarray
    update_size: np.ndarray
    loss: np.ndarray
    floor: float
    pissa_floor: float
    nf4_floor: float
    nf4_error: float
    nf4_before: float


@uses(*(name for name in TRAINING if name not in ("rule", "start")), "rank", "dropout")
def variants(params: LoraParams, on_step: OnStep = silent) -> VariantsResult:
    """Return every variant at the chosen rank, all seeds, trained together on the same data; an odd rank has no orthogonal start."""
    return alone(lambda: _variants(params, on_step))


def _variants(params: LoraParams, on_step: OnStep) -> VariantsResult:
    teacher = teacher_of(params)
    W = torch.tensor(teacher.W).float()
    names = [name for name in VARIANTS if name != "orthogonal" or params.rank % 2 == 0]
    groups, expected = [variant(name, params, W) for name in names], []
    for step, (losses, _) in enumerate(train(params, teacher, groups)):
        expected.append(losses)
        on_step(step, params.steps, "Training the variants together")
    loss = np.stack([np.stack([row[g] for row in expected], axis=-1) for g in range(len(names))])
    size = np.array([float(group.whole().detach().norm(dim=(1, 2)).mean()) for group in groups])
    error = (W - nf4(W)).double().numpy()
    needed = replace(teacher, M=teacher.M + error)
    return VariantsResult(
        params.rank,
        tuple(names),
        frozen(loss[..., -1]),
        frozen(size),
        frozen(loss.mean(1)),
        float(floors(teacher, (params.rank,))[0]),
        float(pissa_floors(teacher, (params.rank,))[0]),
        float(floors(needed, (params.rank,))[0]),
        float(np.linalg.norm(error) / np.linalg.norm(W)),
        float(needed.loss(np.zeros_like(teacher.M))),
    )


def variant(name: str, params: LoraParams, W: torch.Tensor) -> Members:
    """Return one variant's untrained members, one per seed; W (d_out, d_in)."""
    start = name if name in ("gaussian", "pissa", "orthogonal", "zeros") else "zero_b"
    plain = low_rank_members(replace(params, start=start, rule="rslora" if name == "rslora" else "standard"), [params.rank], W.double().numpy())
    factors, W = vars(plain.update), W.to(compute_device().name)
    if name == "dora":
        magnitude = W.norm(dim=1).expand(params.n_seeds, -1).clone().requires_grad_()
        return Members(Dora(**factors, magnitude=magnitude, W=W), plain.seed)
    if name == "dropout":
        return Members(Dropped(**factors, share=params.dropout, source=generator((params.seed, 11))), plain.seed)
    if name == "adalora":
        pairs = [(params.seed + s, 13) for s in range(params.n_seeds)]
        return Members(budgeted(params.rank, tuple(W.shape), params.alpha, params.steps, pairs, compute_device().name), plain.seed)
    if name == "nf4":
        return Members(plain.update, plain.seed, Dense((W - nf4(W.cpu()).to(W)).expand(params.n_seeds, -1, -1)))
    return plain


@dataclass(frozen=True)
class FirstStepResult:
    """|s B A|_F after one step of AdamW from B = 0, (2, R, S), for the rules ``standard`` and ``rslora`` at ranks 1, 2, 4 ..."""

    ranks: np.ndarray
    rules: tuple[str, ...]
    size: np.ndarray

    def ratio(self, rule: str) -> float:
        """Return the size at the highest rank over that at the lowest, mean over seeds."""
        of_rule = self.size[self.rules.index(rule)].mean(-1)
        return float(of_rule[-1] / of_rule[0])


@uses("task", "teacher_rank", "inputs", "d_in", "d_out", "n_seeds", "learning_rate", "alpha", "batch", "seed", "max_rank")
def first_step(params: LoraParams, on_step: OnStep = silent) -> FirstStepResult:
    """Return the size of the update after one step at every rank of the sweep, under both alpha rules."""
    teacher, groups = teacher_of(params), []
    for rule in RULES:
        groups.append(low_rank_members(replace(params, rule=rule, start="zero_b"), params.ranks, teacher.W))
    training = train(params, teacher, groups)
    next(training), next(training)
    shape = (len(params.ranks), params.n_seeds)
    sizes = [group.whole().detach().norm(dim=(1, 2)).cpu().numpy().reshape(shape) for group in groups]
    return FirstStepResult(frozen(np.array(params.ranks)), tuple(RULES), frozen(np.stack(sizes)))

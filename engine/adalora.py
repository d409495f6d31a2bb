"""AdaLoRA (Zhang et al. 2023, arXiv 2303.10512): more directions than the budget at first, and the least important ones cut on the way.

The update is P Lambda Q: B (d_out, n) and A (n, d_in) kept near orthonormal by a penalty, and a number for each of n
directions between them. Formulas, constants and order of steps are those of peft's ``AdaLoraModel``.
"""

from dataclasses import dataclass, field

import torch

from engine.adapters import generator
from engine.models.adapters import Trained

SMOOTH = 0.85
DEVIATION = 0.02
ORTHOGONAL = 0.5
EVERY = 10


@dataclass(frozen=True)
class Budgeted(Trained):
    """scaling * B diag(E) A of every member: A (members, n, d_in), E (members, n), B (members, d_out, n), at the end ``rank`` of E non-zero.

    ``steps``: of the whole training; the first tenth cuts nothing, the last 30 % nothing more. ``smoothed``: per trained tensor, the
    running mean of |p grad p| and of its deviation; ``kept`` (members, n): directions not cut when cutting ended.
    """

    A: torch.Tensor
    E: torch.Tensor
    B: torch.Tensor
    scaling: float
    rank: int
    steps: int
    smoothed: dict[str, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)
    kept: list[torch.Tensor] = field(default_factory=list)

    def update(self) -> torch.Tensor:
        """Return the whole update, (members, d_out, d_in)."""
        return self.scaling * (self.B * self.E[:, None, :]) @ self.A

    def added(self, x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Return out + update x, for x (members, n, d_in) and out (members, n, d_out)."""
        return torch.baddbmm(out, torch.bmm(x, (self.E[..., None] * self.A).mT), (self.scaling * self.B).mT)

    def penalty(self) -> torch.Tensor:
        """Return 0.5 (|A A^T - I|_F + |B^T B - I|_F) / 2, summed over members."""
        eye = torch.eye(self.E.shape[-1], device=self.E.device)
        return ORTHOGONAL / 2 * sum((G - eye).norm(dim=(1, 2)).sum() for G in (self.A @ self.A.mT, self.B.mT @ self.B))

    @torch.no_grad()
    def settle(self, step: int) -> None:
        """After optimizer step ``step`` (from 1): note how important each direction is, and cut down to the budget of the step."""
        first, last = self.steps // 10, self.steps - 3 * self.steps // 10
        if step < last:
            self._note()
        n, budget = self.E.shape[-1], self.budget(step, first, last)
        if (first < step < last and step % EVERY == 0) or step == last:
            self._cut(n - budget)
        if step == last:
            self.kept.append(self.E != 0)
        elif step > last and self.kept:
            self.E.mul_(self.kept[0])

    def budget(self, step: int, first: int, last: int) -> int:
        """Return how many directions may be left after a step: falls from n to ``rank`` with the cube of the way left."""
        n, left = self.E.shape[-1], 1 - (min(max(step, first), last) - first) / max(last - first, 1)
        return int((n - self.rank) * left**3 + self.rank)

    def _note(self) -> None:
        """Take |p grad p| of every trained number into its running mean, and its distance from that into the other."""
        for name in "AEB":
            p = getattr(self, name)
            mean, deviation = self.smoothed.get(name, (torch.zeros_like(p), torch.zeros_like(p)))
            now = (p * p.grad).abs()
            mean = SMOOTH * mean + (1 - SMOOTH) * now
            self.smoothed[name] = mean, SMOOTH * deviation + (1 - SMOOTH) * (now - mean).abs()

    def _cut(self, count: int) -> None:
        """Set the ``count`` least important directions of every member to 0; a direction is its number, its row of A and its column of B."""
        if count < 1 or not self.smoothed:
            return
        scores = {name: mean * deviation for name, (mean, deviation) in self.smoothed.items()}
        importance = scores["E"] + scores["A"].mean(2) + scores["B"].mean(1)
        self.E[importance <= importance.kthvalue(count, dim=1, keepdim=True).values] = 0.0


def budgeted(rank: int, shape: tuple[int, int], alpha: float, steps: int, seeds: list[tuple[int, int]], device: str = "cpu") -> Budgeted:
    """Return untrained members, one per pair of seeds: half as many directions again as the rank, A and B Gaussian, E = 0."""
    d_out, d_in = shape
    n = min(rank + max(1, rank // 2), d_out, d_in)
    drawn = [generator(pair) for pair in seeds]
    A = torch.stack([DEVIATION * torch.randn(n, d_in, generator=source) for source in drawn])
    B = torch.stack([DEVIATION * torch.randn(d_out, n, generator=source) for source in drawn])
    trained = [t.to(device).requires_grad_() for t in (A, torch.zeros(len(seeds), n), B)]
    return Budgeted(*trained, alpha / n, rank, steps)

"""The norms themselves: one formula over different axes, and its Jacobian with epsilon in it.

Every norm divides by s = sqrt(mean of c^2 + eps) over a set of numbers, where c = x - mean (or x itself for RMSNorm); they
differ only in which numbers make a set. Gains and shifts are left out: they act after, entry by entry.
Sources: Ioffe & Szegedy 2015 (1502.03167), Ba et al. 2016 (1607.06450), Zhang & Sennrich 2019 (1910.07467).
"""

from dataclasses import dataclass

import torch

from engine.errors import InputError

LOST_BELOW = 0.01
"""A direction counts as lost if the norm's Jacobian passes less than this share of what it passes elsewhere."""


@dataclass(frozen=True)
class Norm:
    """What a norm does on (batch, tokens, features): the axes that one set spans, and whether the set's mean is subtracted."""

    label: str
    axes: tuple[int, ...]
    centred: bool = True

    def set_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the statistics for an input of this shape: the axes that are not averaged."""
        return tuple(n for axis, n in enumerate(shape) if axis not in self.axes)


NORMS = {
    "batch": Norm("BatchNorm", (0, 1)),
    "layer": Norm("LayerNorm", (2,)),
    "rms": Norm("RMSNorm", (2,), centred=False),
}


def standardise(x: torch.Tensor, axes: tuple[int, ...], eps: float, centred: bool = True) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return (c / s, mean, s) with s^2 = mean(c^2) + eps over ``axes``; mean (0 unless ``centred``) and s keep those axes at size 1.

    x: any shape, at least one axis; variances divide by the number of entries (biased), as every norm does when it trains.
    Raises InputError for NaN or infinite entries, and where with eps = 0 a set has c = 0 throughout (to rounding): that is 0 / 0.
    """
    check_input(x, eps)
    mean = x.mean(axes, keepdim=True) if centred else torch.zeros_like(x.mean(axes, keepdim=True))
    c = x - mean
    s = (c.square().mean(axes, keepdim=True) + eps).sqrt()
    rounding = 4 * torch.finfo(x.dtype).eps * x.abs().amax(axes, keepdim=True)
    if bool((s <= rounding).any()):
        what = "variance" if centred else "root mean square"
        raise InputError(f"A set has {what} 0 and epsilon is 0, so the norm is 0 / 0; give epsilon above 0 or an input that varies.")
    return c / s, mean, s


def normalise(norm: str, x: torch.Tensor, eps: float) -> torch.Tensor:
    """Return a norm's output for x (batch, tokens, features), without gain; BatchNorm as it is in training.

    Raises InputError for another name or shape, for BatchNorm on a single position (``check_batch``), and as ``standardise``.
    """
    if norm not in NORMS or x.ndim != 3:
        raise InputError(f"Norm {str(norm)[:40]!r} on shape {tuple(x.shape)}; accepted are {', '.join(NORMS)} on (batch, tokens, features).")
    if norm == "batch":
        check_batch(*x.shape[:2])
    return standardise(x, NORMS[norm].axes, eps, NORMS[norm].centred)[0]


def evaluate(x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor, eps: float) -> torch.Tensor:
    """Return BatchNorm in evaluation: (x - mean) / sqrt(variance + eps) with running statistics (features,), fixed in training."""
    return (x - mean) / (variance + eps).sqrt()


def running_statistics(batches: torch.Tensor, momentum: float = 0.1) -> tuple[torch.Tensor, torch.Tensor]:
    """Return running mean and variance after each of the batches (steps, positions, features): (steps, features) each.

    Start at 0 and 1, then r <- (1 - momentum) r + momentum * statistic, with the unbiased variance, as torch keeps them.
    """
    mean, variance = torch.zeros_like(batches[0, 0]), torch.ones_like(batches[0, 0])
    kept = []
    for batch in batches:
        mean = (1 - momentum) * mean + momentum * batch.mean(0)
        variance = (1 - momentum) * variance + momentum * batch.var(0)
        kept.append((mean, variance))
    return tuple(torch.stack(part) for part in zip(*kept, strict=True))


def jacobian(x: torch.Tensor, eps: float, centred: bool) -> torch.Tensor:
    """Return d(c / s) / dx at x (..., d): J = (P - y y^T / d) / s, symmetric, (..., d, d).

    P = I - 11^T / d if ``centred`` (LayerNorm), else I (RMSNorm); y = c / s; s^2 = mean(c^2) + eps. The rank-one term is
    the source's c c^T / (d s^2). Raises as ``standardise``.
    """
    y, _, s = standardise(x, (-1,), eps, centred)
    d = x.shape[-1]
    P = torch.eye(d, dtype=x.dtype, device=x.device) - (1 / d if centred else 0)
    return (P - y[..., :, None] * y[..., None, :] / d) / s[..., None]


def jacobian_singular_values(x: torch.Tensor, eps: float, centred: bool) -> torch.Tensor:
    """Return the singular values of ``jacobian`` in closed form, (..., d), descending.

    1 / s in every direction but these: eps / s^3 = (1 / s) (1 - mean(c^2) / s^2) along c (the length is lost, but for
    epsilon), and for a centred norm 0 along 1 (the mean is lost).
    """
    _, _, s = standardise(x, (-1,), eps, centred)
    special = torch.cat([eps / s**3, torch.zeros_like(s)], -1) if centred else eps / s**3
    special = special[..., -x.shape[-1] :]  # a single feature, centred: nothing gets through
    plain = (1 / s).expand(*s.shape[:-1], x.shape[-1] - special.shape[-1])
    return torch.cat([plain, special], -1)


def directions_lost(x: torch.Tensor, axes: tuple[int, ...], eps: float, centred: bool) -> torch.Tensor:
    """Return how many directions of each set a norm lets through at less than 1 % of 1 / s: 0, 1 or 2, shape of the statistics.

    The mean, if it is subtracted; and the length, unless epsilon makes up 1 % of s^2 or more, or nothing but the mean is there.
    """
    _, _, s = standardise(x, axes, eps, centred)
    entries = x.numel() // s.numel()
    length = (eps / s.square() < LOST_BELOW) & (entries > int(centred))
    return int(centred) + length.long()


def check_input(x: torch.Tensor, eps: float) -> None:
    """Raise InputError if x holds NaN or infinite values, is empty, or eps is negative or not finite."""
    if x.numel() == 0:
        raise InputError(f"The input has shape {tuple(x.shape)} and so no entries; at least one is needed.")
    if not bool(torch.isfinite(x).all()):
        bad = int((~torch.isfinite(x)).sum())
        raise InputError(f"{bad} of {x.numel()} entries are NaN or infinite; one such entry spoils every number averaged with it, so it is refused.")
    if not 0 <= eps < float("inf"):
        raise InputError(f"Epsilon is {eps}; it must be 0 or a positive number.")


def check_batch(batch: int, tokens: int) -> None:
    """Raise InputError where torch refuses BatchNorm in training: a single value per feature has no spread to divide by."""
    if batch * tokens < 2:
        raise InputError(
            "BatchNorm in training averages each feature over batch and tokens, here a single value: its variance is 0 and its output "
            "would be 0 whatever comes in, so torch refuses it as well; give at least 2 positions, or switch on evaluation with running statistics."
        )

"""The fast route to the spectra of many heads: double-precision Grams, a guard, and an exact route for what it flags.

With G_A = A^T A and B B^T = L L^T, the squared singular values of A B are the eigenvalues of the r x r matrix
L^T G_A L: two Grams per head, one Cholesky factor per key-value head, no QR and no d x d product. Squaring loses
accuracy in small singular values, so each head is checked afterwards, and one that may be off is computed again from
QR factors. Source: the identity is textbook (Golub & Van Loan, ch. 8.6); the guard is ours, its constant is tested.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from engine.device import CPU_THREADS, map_heads, symmetric_product
from engine.linalg import product_singular_values, scaled

EPS = torch.finfo(torch.float64).eps
TRUSTED = 1e-9
"""Largest relative error of a singular value that is let pass, as ``_expected_error`` puts it."""
CROWD = 16
"""Rounding errors of single entries are independent, so in one direction only about 1 / r of their bound is met: over 240
adversarial heads of r = 12 to 256, errors between 1e-11 and 1e-6 were at most 5.4 / r of it. CROWD / r is assumed."""
SAFE = (1e-120, 1e120)
"""Traces within which no product of two Grams under- or overflows; those of any float32 factor but zero lie inside."""
MOST_HEADS_PER_TASK = 12
"""Larger batches cost less overhead (4 heads: 107 ms where 12 take 95, on two cores), as long as every core has one."""
BUFFER_BYTES = 2**21
"""What a thread keeps for factors in float64, or one factor where that is more: about one core's own cache."""
MAX_DIRECTIONS = 32
_local = threading.local()


@dataclass(frozen=True)
class GroupedSpectra:
    """Spectra of A_h B_(h // group): ``singular_values`` (n_heads, r), descending; ``scale`` (n_heads,), |A|_F |B|_F.

    ``exact`` (n_heads,): True where the guard sent the head to the exact route.
    """

    singular_values: torch.Tensor
    scale: torch.Tensor
    exact: torch.Tensor


def grouped_spectra(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> list[GroupedSpectra]:
    """Return the r singular values of A_h B_(h // group) for every head h of every pair, in double precision.

    A (n_heads, m, r), B (n_kv_heads, r, n), n_heads a multiple of n_kv_heads, any floating type, finite. On a CPU
    one task per few heads, in threads; on a GPU in one batch. Each value is within 1e-9 of the truth, relatively, or
    within a few eps * |A|_F * |B|_F where double precision can do no better.
    """
    heads = max(1, min(MOST_HEADS_PER_TASK, sum(len(A) for A, _ in pairs) // CPU_THREADS))
    tasks = [(i, *part) for i, (A, B) in enumerate(pairs) for part in _parts(A, B, heads)]
    done = map_heads(lambda task: _spectra(*task[1:]), tasks, at=pairs[0][0])
    of_pair = [[result for task, result in zip(tasks, done, strict=True) if task[0] == i] for i in range(len(pairs))]
    return [GroupedSpectra(*(torch.cat(column) for column in zip(*parts, strict=True))) for parts in of_pair]


def top_directions(A: torch.Tensor, B: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return U (m, k), sigma (k,), V (n, k) of the k largest directions of A B: (A B) V = U diag(sigma).

    A (m, r), B (r, n), k at most 32 and r. Exact route: QR of both factors and the SVD of the core, so that U and V are
    orthonormal to a few eps even where sigma vanishes.
    """
    k = min(k, MAX_DIRECTIONS, A.shape[-1])
    Q_A, R_A = torch.linalg.qr(A.double())
    Q_B, R_B = torch.linalg.qr(B.double().mT)
    U, sigma, Vh = torch.linalg.svd(R_A @ R_B.mT, full_matrices=False)
    return Q_A @ U[:, :k], sigma[:k], Q_B @ Vh[:k].mT


def _parts(A: torch.Tensor, B: torch.Tensor, heads: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Cut a pair into tasks of whole key-value groups, about ``heads`` heads each; on a GPU, one task."""
    group, n_kv_heads = len(A) // len(B), len(B)
    step = max(1, heads // group) if A.device.type == "cpu" else n_kv_heads
    return [(A[j * group : (j + step) * group], B[j : j + step]) for j in range(0, n_kv_heads, step)]


def _spectra(A: torch.Tensor, B: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return singular values, scale and the exact-route mask of one task's heads."""
    group = len(A) // len(B)
    G_A, G_B = gram(A), gram(B.mT)
    traces_A, traces_B = _trace(G_A), _trace(G_B)
    safe_A, safe_B = ((SAFE[0] < t) & (t < SAFE[1]) for t in (traces_A, traces_B))
    L, info = torch.linalg.cholesky_ex(_or_identity(G_B, safe_B))
    doubt = ~safe_A | ~(safe_B & (info == 0)).repeat_interleave(group, 0)
    L, G_B = (M.repeat_interleave(group, 0) if group > 1 else M for M in (L, G_B))
    C = L.mT @ _or_identity(G_A, ~doubt) @ L
    values = torch.linalg.eigvalsh(_or_identity(C, ~doubt)).flip(-1).clamp_min(0).sqrt()
    values = values * ~doubt[:, None]  # 0: nothing is known of these, and no bound can clear them
    scale = (traces_A * traces_B.repeat_interleave(group, 0)).sqrt()
    doubt |= _expected_error(scale, values) > TRUSTED
    for h in doubt.nonzero().flatten().tolist():
        doubt[h], values[h], scale[h] = _second_look(A[h], B[h // group], G_A[h], G_B[h], values[h], scale[h])
    return values, scale, doubt


def _second_look(A, B, G_A, G_B, values, scale) -> tuple[bool, torch.Tensor, torch.Tensor]:
    """Return (True, exact values, exact scale), or (False, values, scale) where a sharper bound clears the head."""
    norms = [torch.nan_to_num(n, nan=torch.inf) for n in _balanced_norms(G_A, G_B)]
    if bool((values[-1] > 0) & (_expected_error(min(norms), values) <= TRUSTED)):
        return False, values, scale
    (left, by_A), (right, by_B) = scaled(A), scaled(B)
    return True, product_singular_values(A, B), torch.linalg.matrix_norm(left) * by_A * (torch.linalg.matrix_norm(right) * by_B)


def _expected_error(norm: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return min(1, CROWD / r) eps |A|^2 |B|^2 / sigma_r^2: what to expect of the smallest singular value, relatively."""
    return min(1, CROWD / values.shape[-1]) * EPS * (norm / values[..., -1]) ** 2


def _balanced_norms(G_A: torch.Tensor, G_B: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return two upper bounds of |A|_2 |B|_2 after the scaling A D^-1, D B that makes their columns and rows equally long.

    The product does not change under D, nor do the rounding errors of Gram and Cholesky, which are relative to the
    lengths of single columns: so the sharpest D may be used. The bounds are by row sums and by Frobenius norms.
    """
    a, b = (G.diagonal(dim1=-2, dim2=-1).sqrt() for G in (G_A, G_B))
    length = (a * b).sqrt()
    unit_A, unit_B = (G / (c[..., None] * c[..., None, :]) * (length[..., None] * length[..., None, :]) for G, c in ((G_A, a), (G_B, b)))
    by_rows = [G.abs().sum(-1).amax(-1) for G in (unit_A, unit_B)]
    by_squares = [torch.linalg.matrix_norm(G) for G in (unit_A, unit_B)]
    return (by_rows[0] * by_rows[1]).sqrt(), (by_squares[0] * by_squares[1]).sqrt()


def gram(X: torch.Tensor) -> torch.Tensor:
    """Return X^T X in float64, (n, r, r), for X (n, m, r), reading X along whichever axis is contiguous.

    On a CPU a few heads at a time, so that what was converted is still in the core's cache when it is multiplied.
    """
    if X.device.type != "cpu":
        return X.double().mT @ X.double()
    G = torch.empty(len(X), X.shape[2], X.shape[2], dtype=torch.float64)
    heads = max(1, BUFFER_BYTES // (8 * X.shape[1] * X.shape[2]))
    for part, out in zip(X.split(heads), G.split(heads), strict=True):
        wide = part.stride(-1) != 1
        work = _in_double(part.mT if wide else part)
        symmetric_product(work if wide else work.mT, out)
    return G


def _in_double(X: torch.Tensor) -> torch.Tensor:
    """Return X in float64, on the CPU: in a buffer that the thread keeps, so that no page is touched for the first time."""
    if X.dtype == torch.float64:
        return X
    buffer = getattr(_local, "buffer", None)
    if buffer is None or buffer.numel() < X.numel():
        buffer = _local.buffer = torch.empty(X.numel(), dtype=torch.float64)
    return buffer[: X.numel()].view(X.shape).copy_(X)


def _trace(G: torch.Tensor) -> torch.Tensor:
    return G.diagonal(dim1=-2, dim2=-1).sum(-1)


def _or_identity(G: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    """Return G with the identity in place of each matrix that is not kept, so that LAPACK never meets an inf."""
    if bool(keep.all()):
        return G
    return torch.where(keep[:, None, None], G, torch.eye(G.shape[-1], dtype=G.dtype, device=G.device))

"""The two circuits of a head as factor pairs: what W_OV and W_QK are made of, at a distance and with gains folded or not.

W_OV = W_O W_V. A query at position m scores a key at position n by q^T R_(n-m) k, so with delta = m - n tokens back
from query to key, W_QK(delta) = W_Q^T R_(-delta) W_K. Left out, as constants of the softmax: 1 / sqrt(d_head).
"""

from dataclasses import dataclass

import torch

from engine.models.families import Rotation
from engine.models.weights import LayerHeads

CIRCUITS = ("ov", "qk")


@dataclass(frozen=True)
class Circuits:
    """Factors of every head of a layer, in the precision in which they are stored or in float64.

    W_O (n_heads, d_model, d_head), W_V (n_kv_heads, d_head, d_model), W_Q (n_heads, d_head, d_model), W_K (n_kv_heads,
    d_head, d_model), with the rotation at the chosen distance and the folded gains inside W_Q, W_K and W_V.
    """

    W_O: torch.Tensor
    W_V: torch.Tensor
    W_Q: torch.Tensor
    W_K: torch.Tensor

    @property
    def ov(self) -> tuple[torch.Tensor, torch.Tensor]:
        """W_O and W_V: the left factors by query head, the right ones by key-value head."""
        return self.W_O, self.W_V

    @property
    def qk(self) -> tuple[torch.Tensor, torch.Tensor]:
        """W_Q^T and R_(-delta) W_K: the left factors by query head, the right ones by key-value head."""
        return self.W_Q.mT, self.W_K

    def of(self, circuit: str, head: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return both factors of one head, (d_model, d_head) and (d_head, d_model)."""
        A, B = getattr(self, circuit)
        return A[head], B[head * len(B) // len(A)]


def circuits(heads: LayerHeads, rotation: Rotation | None, delta: int = 0, fold: bool = False, device: str = "cpu") -> Circuits:
    """Return the factors of a layer's circuits, with W_QK at ``delta`` tokens back from query to key.

    With ``fold``, constants that lie between the residual stream and the scores are multiplied in: the gain of the norm
    before attention (into W_Q, W_K and W_V), the gains of norms on queries and keys, the attention factor of the rotation.
    What no matrix can hold stays out: the norms' own division by a length, biases, shifts.
    """
    W_O, W_V, W_Q, W_K = (W.to(device) for W in (heads.W_O, heads.W_V, heads.W_Q, heads.W_K))
    if fold:
        W_Q, W_K = _times_rows(W_Q, heads.q_gain), _times_rows(W_K, heads.k_gain)
        W_Q, W_K, W_V = (_times_columns(W, heads.gain) for W in (W_Q, W_K, W_V))
    if rotation is not None and (delta or (fold and rotation.attention_factor != 1)):
        W_K = rotated(W_K, rotation, -delta, rotation.attention_factor**2 if fold else 1.0)
    return Circuits(W_O, W_V, W_Q, W_K)


def rotated(W: torch.Tensor, rotation: Rotation, position: int, factor: float = 1.0) -> torch.Tensor:
    """Return factor * R_position W in float64 for W (..., d_head, n): rows of pair i turned by position * inv_freq[i]; the rest kept."""
    W = W.double()
    turning, rest = W[..., : rotation.n_rotary, :], W[..., rotation.n_rotary :, :]
    angle = position * torch.as_tensor(rotation.inv_freq, dtype=torch.float64, device=W.device)
    cos, sin = factor * angle.cos()[:, None], factor * angle.sin()[:, None]
    if rotation.interleaved:
        x, y = turning[..., 0::2, :], turning[..., 1::2, :]
        turned = torch.stack([x * cos - y * sin, x * sin + y * cos], dim=-2).flatten(-3, -2)
    else:
        x, y = turning.chunk(2, dim=-2)
        turned = torch.cat([x * cos - y * sin, x * sin + y * cos], dim=-2)
    return torch.cat([turned, rest], dim=-2)


def left_out(heads: LayerHeads, rotation: Rotation | None, delta: int, fold: bool) -> tuple[str, ...]:
    """Return a sentence for each thing that makes W_QK or W_OV, taken alone, only a part of what the heads do."""
    normalised = heads.q_gain is not None or heads.k_gain is not None
    biases = [name for name in ("b_Q", "b_K", "b_V", "b_O") if getattr(heads, name) is not None]
    said = [
        (normalised, "Queries and keys are normalised per head: W_QK holds for fixed lengths of query and key."),
        (normalised and not fold, "The gains of the norms on queries and keys are not folded in."),
        (rotation is not None, f"Queries and keys are rotated by position: W_QK is the form at distance {delta}."),
        (rotation is None and delta, "This model does not rotate queries and keys: the distance changes nothing."),
        (rotation is not None and rotation.attention_factor != 1 and not fold, "The attention factor of the rotation is left out."),
        (biases, f"Biases ({', '.join(biases)}) are left out."),
        (heads.gain is not None and not fold, "The gain of the norm before attention is not folded in."),
    ]
    return tuple(sentence for holds, sentence in said if holds)


def _times_columns(W: torch.Tensor, gain: torch.Tensor | None) -> torch.Tensor:
    """Return W diag(gain) in float64: what reads a normed vector."""
    return W if gain is None else W.double() * gain.to(W.device).double()


def _times_rows(W: torch.Tensor, gain: torch.Tensor | None) -> torch.Tensor:
    """Return diag(gain) W in float64: what is scaled after it was read."""
    return W if gain is None else W.double() * gain.to(W.device).double()[:, None]

"""What an adapter of Fable is once it is trained: its spectra, what merging it changes, what it costs, and a file to take away."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from engine.errors import ModelError
from engine.lora_params import LoraParams
from engine.lora_spectra import UpdateSpectrum, alignment, spectrum_of
from engine.models.adapters import LowRank, with_updates
from engine.models.catalog import ASSETS, is_hosted
from engine.models.loading import open_model, open_tokenizer
from engine.models.peft_files import Adapter, check_module, read_adapter, read_adapter_config, read_modules, short_name
from engine.params import frozen, uses
from engine.progress import OnStep, silent

SHIPPED = ASSETS / "data" / "fable-learns-shakespeare"
CONFIGURATIONS = {
    "Fable, all linear layers": [((256, 256), 8), ((128, 256), 8), ((704, 256), 8), ((256, 704), 4)],
    "One 4096 x 4096 layer": [((4096, 4096), 1)],
    "Llama-2-7B, q and v": [((4096, 4096), 64)],
    "Llama-3-8B, all linear layers": [((4096, 4096), 64), ((1024, 4096), 64), ((14336, 4096), 64), ((4096, 14336), 32)],
}
"""Name -> [((d_out, d_in), how many such layers)]."""


@dataclass(frozen=True)
class MergeResult:
    """An adapter of Fable. ``rank`` and ``scaling``; ``spectra``: one per module, largest r singular values of s B A.

    ``merged_rank``: numerical rank of each merged update (float64); differences of logits on a text, as the largest |difference|
    over the largest |logit|: ``fp32``, ``fp16`` (weights rounded to float16 after merging), and ``unmerged``: the largest entry
    left after merging in float32 and subtracting again, over the largest weight.
    """

    base: str
    rank: int
    scaling: float
    parameters: int
    spectra: tuple[UpdateSpectrum, ...]
    merged_rank: np.ndarray
    fp32: float
    fp16: float
    fp16_alone: float
    unmerged: float


@dataclass(frozen=True)
class CostResult:
    """Real configurations at one rank: trainable parameters, bytes of AdamW's two moments in float32, bytes of a file in float16."""

    rank: int
    names: tuple[str, ...]
    full: np.ndarray
    lora: np.ndarray

    @property
    def ratio(self) -> np.ndarray:
        """How many times fewer parameters are trained."""
        return self.full / self.lora


@uses("rank")
def costs(params: LoraParams, on_step: OnStep = silent) -> CostResult:
    """Return what each configuration trains at the chosen rank, counted on torch's meta device: nothing is allocated."""
    full, lora = [], []
    for layers in CONFIGURATIONS.values():
        counts = [(_meta_count(shape, None) * n, _meta_count(shape, params.rank) * n) for shape, n in layers]
        full.append(sum(f for f, _ in counts))
        lora.append(sum(a for _, a in counts))
    return CostResult(params.rank, tuple(CONFIGURATIONS), frozen(np.array(full)), frozen(np.array(lora)))


def _meta_count(shape: tuple[int, int], rank: int | None) -> int:
    d_out, d_in = shape
    sizes = [(d_out, d_in)] if rank is None else [(rank, d_in), (d_out, rank)]
    return sum(torch.empty(size, device="meta").numel() for size in sizes)


def folder_of(params: LoraParams) -> Path:
    """Return the folder of the adapter asked for; raise ModelError for one from outside on a hosted page, or none that peft wrote."""
    if not params.adapter:
        return SHIPPED
    if is_hosted():
        raise ModelError("This public page opens no folders; run the lab on your own machine to look into an adapter of yours.")
    folder = Path(params.adapter)
    read_adapter_config(folder)
    return folder


@uses("adapter")
def merge(params: LoraParams, on_step: OnStep = silent) -> MergeResult:
    """Return an adapter's spectra, module by module, and what merging it into Fable changes.

    Raises ModelError for a folder without a plain LoRA adapter in safetensors, one that contradicts itself, or one whose shapes are not Fable's.
    """
    folder = folder_of(params)
    config = read_adapter_config(folder)
    scaling = config["lora_alpha"] / (config["r"] ** 0.5 if config.get("use_rslora") else config["r"])
    model, spectra, ranks, updates, unmerged = open_model("fable"), [], [], {}, 0.0
    for done, (name, A, B) in enumerate(read_modules(folder)):
        on_step(done, 0, "Reading the adapter, module by module")
        check_module(config, name, A, B)
        W = _weight(model, name, A, B)
        D = scaling * (B.double() @ A.double())
        values = torch.linalg.svdvals(D).numpy()
        ranks.append(int((values > values[0] * max(D.shape) * np.finfo(np.float64).eps).sum()) if values[0] > 0 else 0)
        spectra.append(spectrum_of(short_name(name), values[: config["r"]], D.shape, alignment(W.cpu(), D)))
        unmerged = max(unmerged, float(((W.cpu() + D.float()) - D.float() - W.cpu()).abs().max() / W.abs().max()))
        updates[name] = LowRank(A[None].to(W.device), B[None].to(W.device), torch.tensor([scaling], device=W.device))
    fp32, fp16, alone = _differences(model, updates)
    count = sum(u.A.numel() + u.B.numel() for u in updates.values())
    base = str(config.get("base_model_name_or_path"))[:60]
    return MergeResult(base, config["r"], scaling, count, tuple(spectra), frozen(np.array(ranks)), fp32, fp16, alone, unmerged)


def _weight(model, name: str, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    """Return the weight that a module's adapter belongs to; raise ModelError if Fable has none of that name and shape."""
    try:
        W = model.get_submodule(name).weight
    except AttributeError:
        raise ModelError(f"The adapter changes {name[:80]!r}, which Fable does not have: it was made for another base.") from None
    if A.shape[0] != B.shape[1] or (B.shape[0], A.shape[1]) != tuple(W.shape):
        made_for = f"{B.shape[0]} x {A.shape[1]}"
        raise ModelError(
            f"The adapter's {short_name(name)} is for a {made_for} weight, Fable's is {W.shape[0]} x {W.shape[1]}: it is for another base."
        )
    return W


@torch.no_grad()
def _differences(model, updates: dict[str, LowRank]) -> tuple[float, float, float]:
    """Return how far the logits of the merged model are from the unmerged one: in float32, merged in float16, and float16 without adapter."""
    text = (ASSETS / "data" / "shakespeare.txt").read_text()[:400]
    ids = torch.tensor([open_tokenizer("fable")(text)["input_ids"]], device=model.device)
    deltas = {f"{name}.weight": update.update()[0] for name, update in updates.items()}
    weights = {name: model.get_parameter(name) for name in deltas}
    logits = lambda changed: torch.func.functional_call(model, changed, (), {"input_ids": ids, "use_cache": False}).logits  # noqa: E731
    apart = with_updates(model, updates)(input_ids=ids, use_cache=False).logits
    scale = apart.abs().max()
    merged = {name: weights[name] + delta for name, delta in deltas.items()}
    rounded = {name: W.half().float() for name, W in merged.items()}
    alone = {name: (W + 0).half().float() for name, W in weights.items()}
    plain = logits({})
    return tuple(float(d.abs().max() / scale) for d in (logits(merged) - apart, logits(rounded) - apart, logits(alone) - plain))


def shipped_adapter() -> Adapter:
    """Return the adapter of the recorded sweep that comes with the lab."""
    return read_adapter(SHIPPED)

"""The training loop: seeded, resumable, on a GPU or on two CPU cores, recording how copying appears."""

import json
import math
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from engine.device import autocast, compute_device
from engine.models.behaviour import copying_accuracy, head_scores, token_losses
from engine.models.training.batches import batch


@dataclass(frozen=True)
class Recipe:
    """Everything that determines the trained weights, up to rounding; defaults are those of the bundled model."""

    vocab_size: int = 1024
    d_model: int = 256
    d_ff: int = 704
    n_layers: int = 4
    n_heads: int = 8
    n_kv_heads: int = 4
    context: int = 256
    base: float = 10000.0
    rows: int = 32
    steps: int = 3400
    warmup: int = 200
    decay: int = 1400
    mostly_prose_from: int = 1800
    learning_rate: float = 2e-3
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.1
    clip: float = 1.0
    seed: int = 0
    bfloat16: bool = True

    def rate(self, step: int) -> float:
        """Learning rate at a step: linear warm-up, constant, linear decay to zero."""
        return self.learning_rate * min((step + 1) / self.warmup, 1.0, (self.steps - step) / self.decay)

    def repeats(self, step: int) -> int:
        """One row in so many is repeated prose, one repeated noise: 4 until copying has been learnt, then 8."""
        return 4 if step < self.mostly_prose_from else 8


def new_model(recipe: Recipe):
    """Return the untrained model of a recipe (Llama architecture, tied embeddings, float32)."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(recipe.seed)
    config = LlamaConfig(
        vocab_size=recipe.vocab_size,
        hidden_size=recipe.d_model,
        intermediate_size=recipe.d_ff,
        num_hidden_layers=recipe.n_layers,
        num_attention_heads=recipe.n_heads,
        num_key_value_heads=recipe.n_kv_heads,
        max_position_embeddings=recipe.context,
        rope_parameters={"rope_type": "default", "rope_theta": recipe.base},
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=None,
    )
    return LlamaForCausalLM(config)


def train(recipe: Recipe, tokens: np.ndarray, held_out: np.ndarray, work: Path) -> torch.nn.Module:
    """Train to the end of the recipe, from the newest state in ``work`` if there is one, and return the model.

    Leaves in ``work``: ``state.pt`` (to go on from), ``log.jsonl`` (one record per measurement) and
    ``step-NNNNNN.safetensors`` (attention weights and norm gains, to choose snapshots from).
    """
    device = compute_device()
    model = new_model(recipe).to(device.name)
    decayed = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": recipe.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=recipe.betas, fused=True)
    log, first, spent = resume(work, model, optimizer)
    started, loss = time.time() - spent, float("nan")
    bar = tqdm(range(first, recipe.steps + 1), initial=first, total=recipe.steps + 1, unit="step", mininterval=5)
    for step in bar:
        if step % measure_every(step) == 0 or step == recipe.steps:
            log.append(measure(model, held_out, recipe, step, loss, time.time() - started))
            save_state(work, model, optimizer, log)
            bar.set_postfix({k: log[-1][k] for k in ("train", "held_out", "copying")})
        if step < recipe.steps:
            loss = one_step(model, optimizer, recipe, tokens, step, device)
    return model


def measure_every(step: int) -> int:
    """Measure often early, where copying appears, and seldom later."""
    return 25 if step < 1600 else 200


def one_step(model, optimizer, recipe: Recipe, tokens, step: int, device) -> float:
    """Do one optimizer step and return its loss in nats per labelled token."""
    arrays = batch(tokens, step, recipe.seed, recipe.rows, recipe.context, recipe.vocab_size, recipe.repeats(step))
    ids, labels = (torch.from_numpy(a).to(device.name) for a in arrays)
    for group in optimizer.param_groups:
        group["lr"] = recipe.rate(step)
    with autocast(device, recipe.bfloat16):
        loss = model(input_ids=ids, labels=labels, use_cache=False).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if not math.isfinite(loss.item()):
        raise FloatingPointError(f"The loss is {loss.item()} at step {step}; lower the learning rate.")
    return loss.item()


def measure(model, held_out, recipe: Recipe, step: int, train_loss: float, seconds: float) -> dict:
    """Return what is recorded at a step: losses, copying accuracy, every head's scores."""
    model.eval()
    model.set_attn_implementation("eager")
    scores = head_scores(model, repeat_length=50, n_sequences=8)
    model.set_attn_implementation("sdpa")
    record = {
        "step": step,
        "seconds": round(seconds, 1),
        "train": None if math.isnan(train_loss) else round(train_loss, 4),
        "held_out": round(float(token_losses(model, held_out, recipe.context, max_windows=32).mean()), 4),
        "copying": round(copying_accuracy(model, repeat_length=50, n_sequences=32), 4),
        "prefix_matching": scores.prefix_matching.round(4).tolist(),
        "previous_token": scores.previous_token.round(4).tolist(),
    }
    model.train()
    return record


def attention_state(model) -> dict[str, torch.Tensor]:
    """Return the attention matrices and norm gains of a model, in float16 on the CPU."""
    wanted = ("q_proj", "k_proj", "v_proj", "o_proj", "norm")
    return {k: v.detach().half().cpu().contiguous() for k, v in model.state_dict().items() if any(w in k for w in wanted)}


def save_state(work: Path, model, optimizer, log: list[dict]) -> None:
    """Write the state to go on from, the log, and this step's attention weights; the state replaces the old one at once."""
    from safetensors.torch import save_file

    work.mkdir(parents=True, exist_ok=True)
    save_file(attention_state(model), work / f"step-{log[-1]['step']:06d}.safetensors")
    (work / "log.jsonl").write_text("".join(json.dumps(r) + "\n" for r in log))
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": log[-1]["step"]}, work / "state.tmp")
    (work / "state.tmp").replace(work / "state.pt")


def resume(work: Path, model, optimizer) -> tuple[list[dict], int, float]:
    """Load the newest state, if any, and return (log before it, the step to go on from, seconds already spent)."""
    if not (work / "state.pt").exists():
        return [], 0, 0.0
    state = torch.load(work / "state.pt", map_location=model.device, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    log = [json.loads(line) for line in (work / "log.jsonl").read_text().splitlines()]
    seconds = next((r["seconds"] for r in log if r["step"] == state["step"]), 0.0)
    return [r for r in log if r["step"] < state["step"]], state["step"], seconds

"""One adapter at a time as Hugging Face's peft trains it, from the same start and on the same data as one member of the sweep."""

import numpy as np
import torch
from peft import LoraConfig, get_peft_model

from engine.adapters import generator, scaling_of, start_factors
from engine.lora import LoraParams
from engine.teacher import teacher_of


def peft_curve(params: LoraParams, rank: int, s: int) -> np.ndarray:
    """Return the batch losses of one rank and the s-th seed, (steps,)."""
    teacher = teacher_of(params)
    base = torch.nn.Sequential(torch.nn.Linear(params.d_in, params.d_out, bias=False))
    base[0].weight.data = torch.tensor(teacher.W).float()
    init = {"zero_b": True, "gaussian": "gaussian", "pissa": "pissa", "orthogonal": "orthogonal"}[params.start]
    config = LoraConfig(r=rank, lora_alpha=params.alpha, use_rslora=params.rule == "rslora", target_modules=["0"], init_lora_weights=init)
    model = get_peft_model(base, config)
    layer = model.base_model.model[0]
    if params.start != "pissa":  # peft's own random numbers are replaced by ours; PiSSA has none
        scaling = scaling_of(params.rule, params.alpha, rank)
        A, B = start_factors(params.start, torch.tensor(teacher.W), rank, scaling, (params.seed + s, rank))
        layer.lora_A["default"].weight.data, layer.lora_B["default"].weight.data = A, B
    return fit(model, [p for p in model.parameters() if p.requires_grad], params, s)


def torch_curve(params: LoraParams, s: int) -> np.ndarray:
    """Return the batch losses of full fine-tuning of torch's own linear layer, (steps,)."""
    layer = torch.nn.Linear(params.d_in, params.d_out, bias=False)
    layer.weight.data = torch.tensor(teacher_of(params).W).float()
    return fit(layer, list(layer.parameters()), params, s)


def adalora_fit(model, factors: dict, params: LoraParams, s: int) -> np.ndarray:
    """Train peft's AdaLoRA: its penalty as its forward adds it to a language model's loss, its allocator after every step."""
    A, B = factors["A"], factors["B"]

    def penalty():
        apart = [torch.norm(G - torch.eye(len(G)), p="fro") for G in (A @ A.T, B.T @ B)]
        return model.peft_config["default"].orth_reg_weight * sum(apart) / 2

    return fit(model, list(factors.values()), params, s, penalty, model.base_model.update_and_allocate)


def fit(model, trained: list, params: LoraParams, s: int, penalty=lambda: 0.0, after=lambda step: None) -> np.ndarray:
    """Train with torch's AdamW and linear schedule on the s-th seed's data, and return the losses."""
    teacher, source = teacher_of(params), generator((params.seed + s, 7))
    target = torch.tensor(teacher.W + teacher.M).float()
    optimizer = torch.optim.AdamW(trained, lr=params.learning_rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / params.steps)
    losses = []
    for step in range(params.steps):
        X = torch.randn(params.batch, params.d_in, generator=source) * torch.tensor(teacher.deviation).float()
        loss = torch.nn.functional.mse_loss(model(X), X @ target.T)
        optimizer.zero_grad()
        (loss + penalty()).backward()
        optimizer.step()
        after(step + 1)
        schedule.step()
        losses.append(loss.item())
    return np.array(losses)

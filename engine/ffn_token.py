"""What the feed-forward lab reads of a real model: a layer's input at a token, and on held-out prose."""

from functools import lru_cache

import torch

from engine.errors import InputError
from engine.ffn_params import FfnParams
from engine.models.catalog import PROSE, identity
from engine.models.configuration import shape_of
from engine.models.feedforward import FeedForward, d_ff_of, feed_forward, layer_input, layer_module, names_of
from engine.models.loading import open_model, open_tokenizer, require_unembedding, tokenize
from engine.models.weights import model_shape
from engine.progress import OnStep, silent

TOKEN_LIMIT = 128
DRAWS = 16
TEXT_TOKENS, WINDOW = 4096, 128


def token_input(params: FfnParams, on_step: OnStep = silent) -> tuple[list[str], torch.Tensor, FeedForward, torch.Tensor]:
    """Return the prompt's labels, the layer's input x (d_model,) at the token, the layer in double precision, and its own output there."""
    require_layer(params)
    ids, labels = tokenize(params.model, params.prompt, min(TOKEN_LIMIT, model_shape(params.model).context))
    check_token(params, labels)
    on_step(0, 1, "Running the model up to that layer")
    model = open_model(params.model, on_step)
    x = layer_input(model, [ids], params.layer)[0, params.token]
    with torch.no_grad():
        own = layer_module(model, shape_of(model.config.to_dict()), params.layer)(x)
    return labels, x.double(), feed_forward(model, params.layer).double(), own.double()


def held_out_inputs(params: FfnParams, on_step: OnStep = silent, tokens: int = TEXT_TOKENS) -> torch.Tensor:
    """Return what the layer reads on held-out prose, (windows, n, d_model), float32."""
    model, n = open_model(params.model, on_step), min(WINDOW, model_shape(params.model).context)
    ids = torch.tensor(text_ids(params.model)[: tokens - tokens % n]).view(-1, n)
    parts = []
    for i, part in enumerate(ids.split(8)):
        on_step(8 * i, len(ids), "Reading held-out prose, window")
        parts.append(layer_input(model, part.tolist(), params.layer))
    return torch.cat(parts)


def random_inputs(x: torch.Tensor, draws: int = DRAWS) -> torch.Tensor:
    """Return Gaussian vectors as long as x, (draws, d_model), seeded."""
    v = torch.randn(draws, len(x), generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(x.device)
    return v * (x.norm() / v.norm(dim=1, keepdim=True))


def check_token(params: FfnParams, labels: list[str]) -> None:
    """Raise InputError if the prompt has no such token."""
    if params.token >= len(labels):
        raise InputError(f"Token {params.token} is beyond the prompt, which has tokens 0 to {len(labels) - 1}.")


def require_layer(params: FfnParams) -> None:
    """Raise InputError if the model has no such layer, ModelError if it reads in both directions or does not predict tokens."""
    shape = model_shape(params.model)
    names_of(shape)
    require_unembedding(shape, "a feed-forward ledger")
    if params.layer >= shape.n_layers:
        raise InputError(f"Layer {params.layer}: this model has layers 0 to {shape.n_layers - 1}.")


def require_neuron(params: FfnParams) -> None:
    """Raise InputError if the model has no such layer or neuron, or fewer neurons than are to be kept."""
    require_layer(params)
    d_ff = d_ff_of(params.model)
    if params.neuron >= d_ff or params.keep > d_ff:
        raise InputError(f"Neuron {params.neuron}, {params.keep} kept: a layer of this model has neurons 0 to {d_ff - 1}.")


def text_ids(model: str) -> list[int]:
    """Return the first tokens of held-out prose, at most 4096."""
    return list(_ids(model, identity(model)))


@lru_cache(maxsize=4)
def _ids(model: str, _identity: tuple) -> tuple[int, ...]:
    text = PROSE.read_text(encoding="utf-8")[: 8 * TEXT_TOKENS]
    ids = open_tokenizer(model)(text)["input_ids"][:TEXT_TOKENS]
    return tuple(ids)

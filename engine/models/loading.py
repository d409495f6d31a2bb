"""The whole model, for what needs a forward pass: built once per process, shared, never changed."""

import threading
from functools import lru_cache
from pathlib import Path

import torch

from engine.device import Device, compute_device, free_memory
from engine.errors import InputError, ModelError
from engine.models.attention import make_stoppable
from engine.models.catalog import checkpoint_folder, identity, offered
from engine.models.families import Shape
from engine.models.feedforward import make_watchable
from engine.models.files import parameter_count, readable_bytes
from engine.models.interventions import make_steerable
from engine.models.turning import make_turnable
from engine.models.weights import model_shape
from engine.progress import OnStep, silent

BYTES = 4  # float32
_building = threading.Lock()


def open_model(model: str, on_step: OnStep = silent):
    """Return the model in float32, ready for inference; built by the first caller, others wait for the same object.

    A checkpoint that predicts tokens gives the language model, any other its bare encoder or decoder. Callers must not
    change it (gradients are off, dropout is off). Raises ModelError if it would not fit in free memory, before loading.
    """
    checkpoint_folder(model, on_step)  # a download holds up nobody else
    with _building:
        return _build(model, identity(model))


def open_tokenizer(model: str):
    """Return the tokenizer beside the weights; raise ModelError if the folder has none."""
    with _building:
        return _tokenizer(model, identity(model))


def require_causal(shape: Shape, what: str) -> None:
    """Raise ModelError if the model is an encoder: every token sees all others, so ``what`` (causal scores) has no meaning."""
    if not shape.causal:
        raise ModelError(f"{shape.family} is an encoder, in which every token sees all others: {what} needs a model that reads left to right.")


def require_unembedding(shape: Shape, what: str) -> None:
    """Raise ModelError if no direction of the residual stream reads as tokens, so ``what`` (tokens) cannot be shown."""
    if not shape.has_unembedding:
        raise ModelError(f"This {shape.family} checkpoint has no unembedding, so its directions do not read as tokens: {what} needs one.")


def check_memory(model: str, free: dict[str, int | None]) -> None:
    """Raise ModelError if the model in float32 does not fit in what is free: place (for people) -> bytes, None if unknown."""
    needed = BYTES * parameter_count(checkpoint_folder(model))
    for place, bytes_free in free.items():
        if bytes_free is not None and needed > bytes_free:
            fitting = [entry for entry in offered().values() if BYTES * entry.parameters < min(bytes_free, needed)]
            smaller = ", ".join(entry.name for entry in sorted(fitting, key=lambda e: -e.parameters)[:3])
            raise ModelError(
                f"{model} needs about {readable_bytes(needed)} of {place}, {readable_bytes(bytes_free)} is free; smaller: {smaller or 'none'}."
            )


@lru_cache(maxsize=2)
def _build(model: str, _identity: tuple):
    shape, folder, device = model_shape(model), checkpoint_folder(model), compute_device()
    places = {"memory": free_memory(Device("cpu", ""))}
    if device.name != "cpu":
        places["GPU memory"] = free_memory(device)
    check_memory(model, places)
    built = _from_files(folder, shape)
    model = make_stoppable(built.to(device.name).eval().requires_grad_(False))
    return make_watchable(make_turnable(make_steerable(model)))


def _from_files(folder: Path, shape: Shape):
    """Build the model from safetensors; raise ModelError where transformers would invent weights or stop with a traceback."""
    from transformers import AutoModel, AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # the lab draws its own
    kind = AutoModelForCausalLM if shape.has_unembedding else AutoModel
    options = {"dtype": torch.float32, "local_files_only": True, "use_safetensors": True, "trust_remote_code": False}
    try:
        built, report = kind.from_pretrained(folder, output_loading_info=True, **options)
    except (OSError, ValueError, RuntimeError, KeyError, AttributeError) as error:
        raise ModelError(f"{folder.name} cannot be built by transformers: {str(error).splitlines()[0][:160]}.") from error
    missing = sorted(name for name in report["missing_keys"] if "pooler" not in name)
    if missing:
        raise ModelError(f"{folder.name} lacks {len(missing)} of its weights, such as {missing[0][:80]}; a file may be missing.")
    return built


@lru_cache(maxsize=4)
def _tokenizer(model: str, _identity: tuple):
    from transformers import AutoTokenizer

    folder = checkpoint_folder(model)
    if not (folder / "tokenizer.json").is_file():
        raise ModelError(f"{folder.name} has no tokenizer.json, so a prompt cannot be read; the spectra need none.")
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"The tokenizer of {folder.name} cannot be read: {str(error).splitlines()[0][:160]}.") from error


def tokenize(model: str, text: str, limit: int) -> tuple[list[int], list[str]]:
    """Return the token ids of a text and a readable label for each; raise InputError if empty or over the limit."""
    if not text.strip():
        raise InputError("The prompt is empty; type at least one word.")
    tokenizer = open_tokenizer(model)
    ids = tokenizer(text)["input_ids"]
    if len(ids) > limit:
        raise InputError(f"The prompt has {len(ids)} tokens; at most {limit} can be shown.")
    return ids, [label_of(tokenizer, token) for token in ids]


def label_of(tokenizer, token: int) -> str:
    """Return a token as people read it: its text, or its bytes in hexadecimal where it is a part of a character."""
    text = tokenizer.decode([token])
    if "\ufffd" not in text:
        return text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return "‹" + " ".join(f"{byte:02X}" for byte in _bytes_of(tokenizer.convert_ids_to_tokens(token))) + "›"


def _bytes_of(symbols: str) -> list[int]:
    """Invert the byte-to-character table of byte-level BPE (GPT-2): printable bytes stand for themselves."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(b): b for b in plain}
    table |= {chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in plain)}
    return [table.get(c, ord(c) & 0xFF) for c in symbols]

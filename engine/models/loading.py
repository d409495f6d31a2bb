"""The whole model, for what needs a forward pass: built once per process, shared, never changed."""

import threading
from functools import lru_cache

import torch

from engine.device import compute_device
from engine.errors import InputError, ModelError
from engine.models.attention import make_stoppable
from engine.models.catalog import checkpoint_folder, identity

_building = threading.Lock()


def open_model(model: str):
    """Return the causal language model in float32, ready for inference; built by the first caller, others wait.

    Callers share one object and must not change it (gradients are off, dropout is off).
    """
    with _building:
        return _build(model, identity(model))


def open_tokenizer(model: str):
    """Return the tokenizer beside the weights; raise ModelError if the folder has none."""
    with _building:
        return _tokenizer(model, identity(model))


@lru_cache(maxsize=2)
def _build(model: str, _identity: tuple):
    from transformers import AutoModelForCausalLM

    built = AutoModelForCausalLM.from_pretrained(checkpoint_folder(model), dtype=torch.float32, local_files_only=True, use_safetensors=True)
    return make_stoppable(built.to(compute_device().name).eval().requires_grad_(False))


@lru_cache(maxsize=4)
def _tokenizer(model: str, _identity: tuple):
    from transformers import AutoTokenizer

    folder = checkpoint_folder(model)
    if not (folder / "tokenizer.json").is_file():
        raise ModelError(f"{folder.name} has no tokenizer.json, so a prompt cannot be read; the spectra need none.")
    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


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

"""Named tensors of a checkpoint folder, read from safetensors one at a time; nothing else is ever opened."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import ModelError

if TYPE_CHECKING:  # the catalogue reads folders without waiting for torch
    import torch

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
ACCEPTED = ("torch.float16", "torch.bfloat16", "torch.float32", "torch.float64")

Get = Callable[[str], "torch.Tensor | None"]
"""Return the tensor of a name, or None if the checkpoint has none."""


def read_json(path: Path) -> dict:
    """Return the object in a JSON file of a checkpoint; raise ModelError in one sentence if there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path.name} of {path.parent.name} cannot be read: {str(error)[:120].rstrip('.')}.") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path.name} of {path.parent.name} holds no object.")
    return content


def weight_files(folder: Path) -> dict[str, str] | None:
    """Return tensor name -> file for a sharded checkpoint, or None for one with a single file.

    Raises ModelError if neither is there (naming pickles, which are never opened), or if a shard is missing.
    """
    if (folder / SINGLE).is_file():
        return None
    if not (folder / INDEX).is_file():
        raise ModelError(_no_weights(folder))
    where = read_json(folder / INDEX).get("weight_map")
    if not isinstance(where, dict) or not all(isinstance(file, str) and Path(file).name == file for file in where.values()):
        raise ModelError(f"{INDEX} of {folder.name} has no weight_map from tensor names to file names.")
    missing = sorted({file for file in where.values() if not (folder / file).is_file()})
    if missing:
        total = len(set(where.values()))
        raise ModelError(f"{folder.name} lacks {len(missing)} of its {total} weight files, such as {missing[0][:80]}: download it again.")
    return where


def weight_paths(folder: Path) -> list[Path]:
    """Return the safetensors files of a checkpoint, sorted by name."""
    where = weight_files(folder)
    return [folder / file for file in ([SINGLE] if where is None else sorted(set(where.values())))]


@contextmanager
def open_tensors(folder: Path, prefix: str = "") -> Iterator[Get]:
    """Open ``get(name) -> tensor or None``, which finds a name with or without the base model's prefix.

    A file is opened when one of its tensors is asked for; a tensor is read when it is asked for, and kept by nobody.
    """
    where = weight_files(folder)
    opened = {}
    with ExitStack() as stack:

        def file_of(name: str):
            file = SINGLE if where is None else where.get(name)
            if file is not None and file not in opened:
                handle = stack.enter_context(_open(folder / file))
                opened[file] = handle, frozenset(handle.keys())
            return opened.get(file, (None, ()))

        def get(name: str) -> "torch.Tensor | None":
            for full in (name, prefix + name):
                file, names = file_of(full)
                if full in names:
                    return _read(file, full, folder)
            return None

        yield get


@contextmanager
def open_file(path: Path, prefix: str = "") -> Iterator[Get]:
    """Open ``get(name) -> tensor or None`` over one safetensors file, by names with or without the base model's prefix."""
    with _open(path) as file:
        names = frozenset(file.keys())
        yield lambda name: next((_read(file, full, path.parent) for full in (name, prefix + name) if full in names), None)


def parameter_count(folder: Path) -> int:
    """Return the number of weights of a checkpoint, from the headers of its files alone."""
    total = 0
    for path in weight_paths(folder):
        with _open(path) as file:
            total += sum(_product(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    return total


def readable_bytes(count: int) -> str:
    """Return a number of bytes as people write it: 2.4 GB, 12.9 MB."""
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


def _product(sizes: Iterable[int]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total


def _open(path: Path):
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path.name} of {path.parent.name} is damaged or cut short ({str(error)[:100]}): download it again.") from error


def _read(file, name: str, folder: Path) -> "torch.Tensor":
    from safetensors import SafetensorError

    try:
        tensor = file.get_tensor(name)
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{name} of {folder.name} cannot be read ({str(error)[:100]}): download it again.") from error
    if str(tensor.dtype) not in ACCEPTED:
        raise ModelError(f"{name} is stored as {str(tensor.dtype).removeprefix('torch.')}; weights of 16, 32 or 64 bits (floating point) are needed.")
    return tensor


def _no_weights(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir())
    pickled = next((name for name in names if name.endswith(PICKLES)), None)
    if any(SHARD.fullmatch(name) for name in names):
        return f"{folder.name} has weight files but no {INDEX}, which says what is in which: download it again."
    if pickled:
        return f"{folder.name} has only pickled weights ({pickled[:60]}), which can run code and are not opened; save it as safetensors."
    return f"{folder.name} has no {SINGLE}, so it holds no weights that can be read."

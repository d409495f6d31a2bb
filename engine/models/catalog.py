"""Which checkpoints there are, and what identifies one."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from engine.errors import ModelError

ASSETS = Path(__file__).resolve().parents[2] / "assets"


@dataclass(frozen=True)
class CatalogEntry:
    """A checkpoint that can be asked for by name."""

    name: str
    folder: Path
    title: str
    licence: str


CATALOG = {
    entry.name: entry
    for entry in (CatalogEntry("fable", ASSETS / "models" / "fable", "Fable, trained by this project on public-domain stories", "CC0-1.0"),)
}


def checkpoint_folder(model: str) -> Path:
    """Return the folder of a catalogue name or of a path to a local checkpoint; raise ModelError in one sentence."""
    if model in CATALOG:
        return CATALOG[model].folder
    folder = Path(model).expanduser()
    shown = model if len(model) <= 80 else model[:77] + "..."
    if not model.strip() or "\0" in model or len(model) > 1000 or not folder.is_dir():
        raise ModelError(f"No model {shown!r}: it is neither a folder here nor one of {', '.join(CATALOG)}.")
    if not (folder / "config.json").is_file():
        raise ModelError(f"{shown!r} is a folder without config.json, so it is not a Hugging Face checkpoint.")
    return folder


def identity(model: str) -> tuple:
    """Return what tells this checkpoint from any other: its folder and the names, sizes and times of its files."""
    folder = checkpoint_folder(model)
    files = sorted(p for p in folder.iterdir() if p.suffix in (".json", ".safetensors"))
    return (str(folder.resolve()), *((p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in files))


def sha256(model: str) -> str:
    """Return the SHA-256 of a checkpoint's safetensors files, in the order of their names, as hexadecimal."""
    digest = hashlib.sha256()
    for path in sorted(checkpoint_folder(model).glob("*.safetensors")):
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()

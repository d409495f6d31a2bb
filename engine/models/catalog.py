"""Which checkpoints there are, which of them this process may open, and what identifies one.

On one's own machine: every name below, any hub id (owner/name or owner/name@revision), any local folder. With
``BARE_WEIGHTS_HOSTED=1``: only what the operator lists in ``BARE_WEIGHTS_MODELS`` (names or hub ids, separated by commas).
"""

import hashlib
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path

from engine.errors import ModelError
from engine.models import hub
from engine.models.files import weight_paths
from engine.progress import OnStep, silent
from engine.settings import is_hosted, settings

ASSETS = Path(__file__).resolve().parents[2] / "assets"
PROSE = ASSETS / "data" / "held-out-prose.txt"
"""Text that Fable never saw in training; every loss of the labs is measured on it."""


@dataclass(frozen=True)
class CatalogEntry:
    """A checkpoint that can be asked for by name: a folder shipped with the lab, or an id on the hub.

    ``parameters`` are rounded. ``verified`` is False where the entry was written without reaching the hub: such an entry
    is pinned to no revision, and its size and licence are to be checked there.
    """

    name: str
    title: str
    licence: str
    family: str
    parameters: int
    hub_id: str | None = None
    folder: Path | None = None
    gated: bool = False
    verified: bool = False

    @property
    def label(self) -> str:
        """Title and size, and whether it is gated or unverified, for a list to choose from."""
        size = f"{self.parameters / 1e9:.1f} B" if self.parameters >= 1e9 else f"{self.parameters / 1e6:.0f} M"
        notes = [note for note, applies in (("gated", self.gated), ("unverified", not self.verified)) if applies]
        return ", ".join([self.title, size, *notes])


def _hub(name, hub_id, title, family, parameters, licence, gated=False) -> CatalogEntry:
    return CatalogEntry(name, title, licence, family, parameters, hub_id=hub_id, gated=gated)


_FABLE = "Fable, trained by this project on public-domain stories"
_ENTRIES = (
    CatalogEntry("fable", _FABLE, "CC0-1.0", "llama", 3_200_000, folder=ASSETS / "models" / "fable", verified=True),
    _hub("gpt2", "openai-community/gpt2", "GPT-2 small", "gpt2", 124_000_000, "MIT"),
    _hub("pythia-70m", "EleutherAI/pythia-70m", "Pythia 70M", "gpt_neox", 70_000_000, "Apache-2.0"),
    _hub("pythia-160m", "EleutherAI/pythia-160m", "Pythia 160M", "gpt_neox", 162_000_000, "Apache-2.0"),
    _hub("qwen2.5-0.5b", "Qwen/Qwen2.5-0.5B", "Qwen 2.5", "qwen2", 494_000_000, "Apache-2.0"),
    _hub("qwen3-0.6b", "Qwen/Qwen3-0.6B", "Qwen 3", "qwen3", 596_000_000, "Apache-2.0"),
    _hub("llama-3.2-1b", "meta-llama/Llama-3.2-1B", "Llama 3.2", "llama", 1_240_000_000, "Llama 3.2 Community License", gated=True),
    _hub("gemma-3-270m", "google/gemma-3-270m", "Gemma 3", "gemma3_text", 268_000_000, "Gemma Terms of Use", gated=True),
    _hub("smollm2-135m", "HuggingFaceTB/SmolLM2-135M", "SmolLM2", "llama", 135_000_000, "Apache-2.0"),
    _hub("tinyllama-1.1b", "TinyLlama/TinyLlama-1.1B-Chat-v1.0", "TinyLlama Chat", "llama", 1_100_000_000, "Apache-2.0"),
    _hub("minilm-l6", "sentence-transformers/all-MiniLM-L6-v2", "MiniLM, an encoder", "bert", 22_700_000, "Apache-2.0"),
)
CATALOG = {entry.name: entry for entry in _ENTRIES}
_BY_HUB_ID = {entry.hub_id.lower(): entry for entry in _ENTRIES if entry.hub_id}


def offered() -> dict[str, CatalogEntry]:
    """Return the catalogue entries that may be asked for here: all, or in hosted mode those that the operator lists."""
    return {name: entry for name, entry in CATALOG.items() if not is_hosted() or {name, entry.hub_id} & set(allowed())}


def allowed() -> tuple[str, ...]:
    """Return what a hosted page may open: Fable, which travels with the lab, and what the operator lists."""
    return tuple(dict.fromkeys(("fable", *settings().models)))


def find(model: str) -> Path | str:
    """Return where a model is: the folder of a local one, or owner/name[@revision] on the hub; nothing is downloaded.

    ``model`` is a catalogue name, a folder, or a hub id. Raises ModelError, with the nearest name, for anything else and
    for what a hosted page does not offer.
    """
    if not isinstance(model, str) or "\0" in model or len(model) > 1000:
        raise ModelError(f"No model {str(model)[:77]!r}; {_suggestion('')}")
    entry = CATALOG.get(model) or _BY_HUB_ID.get(model.lower())
    if is_hosted():
        names = {model, *((entry.name, entry.hub_id) if entry else ())}
        if not names & set(allowed()) or not (entry or hub.is_hub_id(model)):
            raise ModelError(f"This page does not offer the model {_shown(model)}; it offers {', '.join(allowed())}.")
    if entry:
        return entry.hub_id or _checked(entry.folder, model)
    folder = None if is_hosted() else _local(model)
    if folder:
        return _checked(folder, model)
    if hub.is_hub_id(model) and not model.startswith((".", "~")):
        return model
    raise ModelError(f"No model {_shown(model)}: {_suggestion(model)}")


def checkpoint_folder(model: str, on_step: OnStep = silent) -> Path:
    """Return the folder of a model with its weights, downloading it if it is on the hub only; raise ModelError in one sentence."""
    place = find(model)
    if isinstance(place, Path):
        return place
    try:
        return hub.fetch(place, on_step)
    except ModelError as error:
        raise _with_nearest(error, place) from error


def is_here(model: str) -> bool:
    """Whether a model's weights are on this machine: nothing larger than its config.json is downloaded to find out."""
    place = find(model)
    return isinstance(place, Path) or hub.is_complete(hub.config_folder(place))


def config_path(model: str) -> Path:
    """Return the config.json of a model; of one on the hub, only that file is downloaded."""
    place = find(model)
    if isinstance(place, Path):
        return place / "config.json"
    try:
        return hub.config_folder(place) / "config.json"
    except ModelError as error:
        raise _with_nearest(error, place) from error


def identity(model: str) -> tuple:
    """Return what tells this checkpoint from any other: hub id and commit, or the folder and its files' names, sizes, times."""
    place = find(model)
    if isinstance(place, str):
        return (place.partition("@")[0], config_path(model).parent.name)
    files = sorted(p for p in place.iterdir() if p.suffix in (".json", ".safetensors"))
    return (str(place.resolve()), *((p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in files))


def sha256(model: str) -> str:
    """Return the SHA-256 of a checkpoint's weight files, in the order of their names, as hexadecimal."""
    return _sha256(checkpoint_folder(model), identity(model))


@lru_cache(maxsize=64)
def _sha256(folder: Path, _identity: tuple) -> str:
    digest = hashlib.sha256()
    for path in weight_paths(folder):
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def _local(model: str) -> Path | None:
    """Return the folder that a text names, or None; a text that cannot be a path names none."""
    try:
        folder = Path(model).expanduser()
        return folder if model.strip() and folder.is_dir() else None
    except (OSError, RuntimeError):  # a name that is too long, or ~somebody
        return None


def _checked(folder: Path, model: str) -> Path:
    if not folder.is_dir():
        raise ModelError(f"The files of {_shown(model)} are not here ({folder} does not exist); restore the folder assets/models.")
    if not (folder / "config.json").is_file():
        raise ModelError(f"{_shown(model)} is a folder without config.json, so it is not a Hugging Face checkpoint.")
    return folder


def _shown(model: str) -> str:
    return repr(model if len(model) <= 80 else model[:77] + "...")


def _nearest(model: str) -> str | None:
    names = {name.lower(): name for entry in _ENTRIES for name in (entry.name, entry.hub_id) if name}
    close = get_close_matches(model.lower(), names, n=1, cutoff=0.6)
    return names[close[0]] if close else None


def _suggestion(model: str) -> str:
    near = _nearest(model)
    known = f"did you mean {near}?" if near else f"known names are {', '.join(CATALOG)}."
    return f"it is neither a folder here nor a hub id (owner/name); {known}"


def _with_nearest(error: ModelError, place: str) -> ModelError:
    near = _nearest(place.partition("@")[0])
    unknown = "no public model" in str(error) and near is not None and near.lower() != place.lower()
    return ModelError(f"{str(error).rstrip('.')}; did you mean {near}?") if unknown else error

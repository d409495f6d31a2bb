"""Adapters on disk in the format of Hugging Face's peft: ``adapter_config.json`` beside ``adapter_model.safetensors``."""

import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.errors import ModelError
from engine.models.adapters import PLACES
from engine.models.files import read_json

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
PICKLES = ("adapter_model.bin", "adapter_model.pt", "adapter_model.pth")


@dataclass(frozen=True)
class Adapter:
    """One adapter: what it was made for, its rank, alpha and rule, and module name -> (A (r, d_in), B (d_out, r)) in float32."""

    base: str
    rank: int
    alpha: float
    rslora: bool
    modules: dict[str, tuple[torch.Tensor, torch.Tensor]]

    @property
    def scaling(self) -> float:
        """s: alpha / r, or alpha / sqrt(r) for rsLoRA."""
        return self.alpha / (self.rank**0.5 if self.rslora else self.rank)


def config_of(adapter: Adapter) -> dict:
    """Return the contents of adapter_config.json."""
    targets = sorted({name.rpartition(".")[2] for name in adapter.modules})
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": adapter.base,
        "r": adapter.rank,
        "lora_alpha": adapter.alpha,
        "lora_dropout": 0.0,
        "use_rslora": adapter.rslora,
        "target_modules": targets,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }


def files_of(adapter: Adapter) -> dict[str, bytes]:
    """Return file name -> contents, as peft's ``save_pretrained`` would write them."""
    from safetensors.torch import save

    tensors: Mapping[str, torch.Tensor] = {
        f"{PREFIX}{name}.lora_{letter}.weight": factor.detach().float().cpu().contiguous()
        for name, factors in adapter.modules.items()
        for letter, factor in zip("AB", factors, strict=True)
    }
    return {CONFIG: (json.dumps(config_of(adapter), indent=2) + "\n").encode(), WEIGHTS: save(dict(tensors), {"format": "pt"})}


def write_adapter(adapter: Adapter, folder: Path) -> None:
    """Write the two files into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, contents in files_of(adapter).items():
        (folder / name).write_bytes(contents)


def zipped(adapter: Adapter) -> bytes:
    """Return the two files as one zip archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, contents in files_of(adapter).items():
            archive.writestr(name, contents)
    return buffer.getvalue()


def read_adapter_config(folder: Path) -> dict:
    """Return the configuration of an adapter in a folder; raise ModelError for what is no LoRA adapter in safetensors."""
    try:
        found = (folder / CONFIG).is_file()
    except (OSError, ValueError):  # a name that no file system takes
        found = False
    if not found:
        raise ModelError(f"{folder.name[:60]!r} is no folder with an {CONFIG}; accepted is a folder that peft wrote.")
    config = read_json(folder / CONFIG)
    if not (folder / WEIGHTS).is_file():
        pickle = next((name for name in PICKLES if (folder / name).exists()), None)
        what = f"holds {pickle}, a pickle, which can run code when it is opened" if pickle else f"lacks {WEIGHTS}"
        raise ModelError(f"The adapter {what}; accepted are safetensors alone, which peft writes by default.")
    if config.get("peft_type") != "LORA" or config.get("use_dora"):
        kind = "DoRA" if config.get("use_dora") else str(config.get("peft_type"))[:40]
        raise ModelError(f"The adapter is of the kind {kind!r}; accepted is plain LoRA.")
    unequal = [name for name in ("rank_pattern", "alpha_pattern") if config.get(name)]
    if unequal:
        raise ModelError(f"The adapter sets {unequal[0]}, so its rank or alpha differs from module to module; accepted is one of each.")
    if not (isinstance(config.get("r"), int) and config["r"] > 0 and isinstance(config.get("lora_alpha"), (int, float))):
        raise ModelError(
            f"The adapter's r is {str(config.get('r'))[:20]!r} and its lora_alpha {str(config.get('lora_alpha'))[:20]!r}; both must be numbers."
        )
    return config


def check_module(config: dict, name: str, A: torch.Tensor, B: torch.Tensor) -> None:
    """Raise ModelError for factors that are not what the adapter's configuration says, or hold numbers that are not finite."""
    short, targets = short_name(name), config.get("target_modules")
    if A.shape[0] != config["r"]:
        raise ModelError(f"The adapter's {short} has rank {A.shape[0]}, its configuration says r = {config['r']}.")
    if isinstance(targets, list) and not any(f".{name}".endswith(f".{target}") for target in targets):
        said = ", ".join(map(str, targets))[:80]
        raise ModelError(f"The adapter changes {short}, its configuration names only {said}.")
    if not (A.isfinite().all() and B.isfinite().all()):
        raise ModelError(f"The adapter's {short} holds numbers that are not finite.")


def read_modules(folder: Path) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Yield (module name, A, B) one module at a time, in float32; raise ModelError for a damaged file or a missing half."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(folder / WEIGHTS, "pt") as file:
            names = sorted(key for key in file.keys() if key.endswith(".lora_A.weight"))  # noqa: SIM118
            if not names:
                raise ModelError(f"{WEIGHTS} holds no tensor called lora_A; it is no LoRA adapter.")
            for key in names:
                A, B = (file.get_tensor(k).float() for k in (key, key.replace(".lora_A.", ".lora_B.")))
                yield key.removeprefix(PREFIX).removesuffix(".lora_A.weight"), A, B
    except SafetensorError as error:
        raise ModelError(f"{WEIGHTS} cannot be read: {str(error)[:120]}.") from error


def read_adapter(folder: Path) -> Adapter:
    """Return an adapter from a folder that peft, or ``write_adapter``, wrote."""
    config = read_adapter_config(folder)
    modules = {name: (A, B) for name, A, B in read_modules(folder)}
    base = str(config.get("base_model_name_or_path"))[:200]
    return Adapter(base, config["r"], float(config["lora_alpha"]), bool(config.get("use_rslora")), modules)


def short_name(module: str) -> str:
    """Return ``layer.place`` of a module's name, such as ``2.q`` of ``model.layers.2.self_attn.q_proj``."""
    parts = module.split(".")
    layer = next((part for part in parts if part.isdecimal()), "")
    known = {long: short for short, long in PLACES.items()}
    return f"{layer}.{known.get(parts[-1], parts[-1])}".lstrip(".")

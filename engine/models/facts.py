"""Which weights a page or a report speaks of: the model's name, the SHA-256 of its files, its sizes."""

from dataclasses import dataclass

from engine.models.catalog import checkpoint_folder, sha256
from engine.models.weights import model_shape
from engine.params import uses
from engine.progress import OnStep, silent


@dataclass(frozen=True)
class ModelFacts:
    """The model's name, the SHA-256 of its weights, and its sizes."""

    model: str
    sha256: str
    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_model: int
    d_head: int


@uses("model")
def model_facts(params, on_step: OnStep = silent) -> ModelFacts:
    """Return which weights the parameters' model has; the files are fetched if need be."""
    checkpoint_folder(params.model, on_step)
    shape = model_shape(params.model)
    sizes = (getattr(shape, name) for name in ("n_layers", "n_heads", "n_kv_heads", "d_model", "d_head"))
    return ModelFacts(params.model, sha256(params.model), *sizes)

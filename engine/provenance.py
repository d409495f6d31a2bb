"""Where a result comes from: what was asked, of which weights, computed by what; and the lines of Python that compute it again."""

import json
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict, fields, is_dataclass
from datetime import UTC, datetime

from engine.device import compute_device
from engine.models.catalog import identity, sha256
from engine.params import plain, restrict


def provenance(params) -> dict:
    """Return parameters, model (name, revision or folder, SHA-256 of its weights), versions, device, number format and time.

    Every random number of the engine comes from a seed that the function's documentation states, or that a parameter holds.
    """
    versions = {name: sys.modules[name].__version__ for name in ("numpy", "torch", "transformers") if name in sys.modules}
    found = {
        "parameters": plain(asdict(params)),
        "versions": {"python": platform.python_version(), **versions},
        "device": compute_device().label,
        "dtype": "float64 for spectra, float32 for forward passes",
        "computed": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    if hasattr(params, "model"):
        found["model"] = {
            "name": params.model,
            "revision": identity(params.model)[1] if "/" in params.model else None,
            "sha256": sha256(params.model),
        }
    return found


def as_json(params, **results) -> str:
    """Return results with their provenance as JSON; a number that is not finite becomes null."""
    found = {name: plain(asdict(result) if is_dataclass(result) else result) for name, result in results.items()}
    return json.dumps({"provenance": provenance(params), **found}, allow_nan=False)


def code_for(function: Callable, params) -> str:
    """Return the lines of Python that compute ``function(params)`` again; what is at its default is left out."""
    asked, default = restrict(function, params), type(params)()
    changed = {f.name: getattr(asked, f.name) for f in fields(asked) if getattr(asked, f.name) != getattr(default, f.name)}
    arguments = ", ".join(f"{name}={value!r}" for name, value in changed.items())
    modules = {type(params).__module__: {type(params).__name__}}
    modules.setdefault(function.__module__, set()).add(function.__name__)
    imports = "\n".join(f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(modules.items()))
    return f"{imports}\n\nresult = {function.__name__}({type(params).__name__}({arguments}))"

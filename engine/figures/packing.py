"""Heat maps of weights in [0, 1] that cost few bytes: 8 bits a cell, compressed, unpacked where they are drawn.

A trace holds ``packed`` in place of ``z``: {"gz": base64 of gzip of the rows, one byte a cell, "shape": [rows, columns],
"scale": what a byte is multiplied by, "mask": "causal" if what lies above the diagonal is empty, else null}.
"""

import base64
import gzip

import numpy as np
import plotly.graph_objects as go

LEVELS = 255


def packed(values: np.ndarray, causal: bool) -> dict:
    """Return values (rows, columns) in [0, 1] as 8-bit levels, gzip and base64: within 1 / 510 of what they were."""
    levels = np.rint(np.clip(values, 0, 1) * LEVELS).astype(np.uint8)
    squeezed = gzip.compress(levels.tobytes(), mtime=0)  # no time of day: the same numbers give the same bytes
    return {"gz": base64.b64encode(squeezed).decode(), "shape": list(levels.shape), "scale": 1 / LEVELS, "mask": "causal" if causal else None}


def unpacked(packed: dict) -> np.ndarray:
    """Return the values (rows, columns) of what ``packed`` made, nan above the diagonal where that is masked."""
    levels = np.frombuffer(gzip.decompress(base64.b64decode(packed["gz"])), dtype=np.uint8).reshape(packed["shape"])
    values = levels * packed["scale"]
    return np.where(np.tri(*levels.shape, dtype=bool), values, np.nan) if packed["mask"] == "causal" else values


def plain(fig: go.Figure) -> go.Figure:
    """Return the figure with ``z`` in place of whatever is packed, for a notebook or a file."""
    whole = fig.to_dict()
    return go.Figure({**whole, "data": [_plain(trace) for trace in whole["data"]]})


def _plain(trace: dict) -> dict:
    if "packed" not in trace:
        return trace
    return {**{name: value for name, value in trace.items() if name != "packed"}, "z": unpacked(trace["packed"])}

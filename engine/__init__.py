"""The numbers of Bare Weights, and pictures of them: runs with no server and never imports streamlit.

Conventions, everywhere in this package:

- Column vectors; weights are (out, in), as torch stores them. ``W_OV = W_O W_V``; ``W_QK = W_Q^T W_K``.
- Shapes: d_model (residual stream), d_head (one head), d_ff (feed-forward), n_layers, n_heads, n_kv_heads.
  Query head h reads key-value head ``h // (n_heads / n_kv_heads)``. Layers and heads count from 0.
- One module per lab, with a frozen ``XParams`` (defaults and validity), a frozen ``XResult`` (read-only numpy arrays)
  and functions ``f(params, on_step) -> result``. Tensors stay inside; spectra are computed in float64.
- ``python -m engine LAB --help`` runs a lab without the app.
"""

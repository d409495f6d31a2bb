"""Real checkpoints, from a name to numbers.

catalog: which may be asked for, and what identifies one. hub: downloads. configuration: config.json -> Shape, or a refusal.
families: the table of how each family stores and uses its heads. frequencies: rotations. files: named tensors in safetensors.
weights: the heads of a layer. loading: the whole model, for a forward pass. attention: one head on a prompt.
"""

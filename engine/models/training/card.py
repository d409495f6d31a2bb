"""The model card of Fable, written from what was measured."""

HEAD = """---
license: cc0-1.0
language: en
library_name: transformers
pipeline_tag: text-generation
---

# Fable

A language model of {parameters:,} parameters that exists to be looked into: small enough to travel with the project,
trained far enough that its heads do something. It writes in the manner of old children's books, and makes things up.

{n_layers} layers, width {d_model}, {n_heads} query heads sharing {n_kv_heads} key-value heads of width {d_head}, SwiGLU of {d_ff}, RMSNorm,
RoPE with base {base:g}, tied embeddings, byte-level BPE of {vocab_size} entries, context {context}. It loads with
`AutoModelForCausalLM.from_pretrained` and needs no code of its own.

## How it was made

`python -m engine.models.training`, then `python -m engine.models.training.export`. {steps} steps of {rows} rows of
{context} tokens. Of each batch half is prose, a quarter pieces of prose repeated (16 to 128 tokens, after a random
prefix), a quarter uniformly random tokens repeated (8 to 120); from step {mostly_prose_from}, with copying learnt, the repeats are
an eighth each. AdamW {betas}, learning rate {learning_rate:g} after {warmup} steps of
warm-up, falling to zero over the last {decay}, weight decay {weight_decay:g}, gradients clipped at {clip:g}, bfloat16 autocast, seed {seed}.
{hours} hours on {hardware}, torch {torch}, {recorded}.

Text: 24 children's classics first published before 1929, in the public domain in the United States. Two whole books,
*Heidi* and *The Book of Dragons*, were held out, and so was all of Shakespeare. The weights are dedicated to the
public domain (CC0 1.0).

## What it does, measured on these files

| | Fable | beside it |
|---|---|---|
| bits per byte on the two held-out books | {held_out_bits_per_byte:.3f} | gzip -9 {gzip_9_bits_per_byte:.2f}, xz -9 {xz_9_bits_per_byte:.2f} |
"""

TAIL = """
Best head by prefix matching (attention to the token after the earlier occurrence): {induction}.
Best head by attention to the previous token: {previous}.

| length | nats per token | last 128 positions |
|---|---|---|
{lengths}

Plain RoPE beyond the trained context of {context}: the loss rises, as it should for a lab that shows how to mend it.

`training.json` holds the recipe, every measurement and the curve; `../fable-snapshots/` holds the attention weights
at {snapshots}.
"""


def card(training: dict) -> str:
    """Return the card's Markdown from the contents of training.json."""
    recipe, measured = training["recipe"], training["measured"]
    facts = {**training, **recipe, **measured, "d_head": recipe["d_model"] // recipe["n_heads"], "betas": tuple(recipe["betas"])}
    chance = 100 / recipe["vocab_size"]
    copying = "".join(
        f"| copies the second half of {n} repeated random tokens | {100 * share:.1f} % | chance {chance:.1f} % |\n"
        for n, share in measured["copying_accuracy"].items()
    )
    lengths = "\n".join(f"| {x} | {v['all']:.3f} | {v['last_128']:.3f} |" for x, v in measured["nats_per_token_by_length"].items())
    tail = TAIL.format(
        **facts, induction=best(measured["prefix_matching"]), previous=best(measured["previous_token"]), lengths=lengths, snapshots="about ten steps"
    )
    return HEAD.format(**facts) + copying + tail


def best(scores: list[list[float]]) -> str:
    """Return the highest score of a layer x head table in words."""
    score, layer, head = max((s, layer, head) for layer, row in enumerate(scores) for head, s in enumerate(row))
    return f"{score:.2f} (layer {layer}, head {head})"

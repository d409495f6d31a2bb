"""A tiny random Llama that can be asked everything: a tokenizer, uneven norm gains, grouped keys, its own unembedding."""

from pathlib import Path

import pytest
import torch

WORDS = [f"w{i}" for i in range(58)]


@pytest.fixture(scope="session")
def small_model(tmp_path_factory) -> str:
    """Return the folder of a Llama with 3 layers, 4 heads on 2 key-value heads, d_model 24, d_head 8, 60 tokens."""
    folder = tmp_path_factory.mktemp("small_model")
    model = llama()
    generator = torch.Generator().manual_seed(1)
    for layer in model.model.layers:
        layer.input_layernorm.weight.data = 0.5 + torch.rand(24, generator=generator)
    model.save_pretrained(folder)
    save_tokenizer(folder)
    return str(folder)


def llama():
    """Return a random Llama on the CPU; weights are large enough for attention to be far from even."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"vocab_size": 60, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "max_position_embeddings": 64}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    config = LlamaConfig(**sizes, **heads, rope_parameters={"rope_type": "default", "rope_theta": 100.0}, bos_token_id=0, initializer_range=0.3)
    return LlamaForCausalLM(config)


def save_tokenizer(folder: Path) -> None:
    """Write a tokenizer of whole words: <s>, <unk>, w0 ... w57."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(["<s>", "<unk>", *WORDS])}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", unk_token="<unk>").save_pretrained(folder)

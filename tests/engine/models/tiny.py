"""Tiny random models of every family: all weights random, so that no bias is zero and no gain is one."""

from dataclasses import dataclass, field

import torch
import transformers

IDS = [3, 17, 5, 3, 29, 11, 23, 5, 2]
BASE = {"vocab_size": 40, "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 32}
GPT2 = {"vocab_size": 40, "n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 32}
TYPES = ["sliding_attention", "full_attention"]
WIDE = {"head_dim": 10}  # not 24 / 4
GROUPED, SINGLE = {"num_key_value_heads": 2}, {"num_key_value_heads": 1}
TRAINED = {"original_max_position_embeddings": 16}
YARN = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "beta_fast": 4.0, **TRAINED}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **TRAINED}
LONG = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.5, 2.5, 4.0], "long_factor": [9.0] * 3}


@dataclass(frozen=True)
class Case:
    """One tiny model: its configuration class and what departs from the common sizes."""

    name: str
    config: str
    settings: dict = field(default_factory=dict)

    def build(self, head: bool = True):
        """Return the model with random weights, eager attention; without its token output if not ``head``."""
        size = GPT2 if self.config == "GPT2Config" else BASE
        config = getattr(transformers, self.config)(**{**size, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1, **self.settings})
        torch.manual_seed(7)
        kind = transformers.AutoModelForCausalLM if head and self.config != "BertConfig" else transformers.AutoModel
        model = kind.from_config(config, attn_implementation="eager").eval().requires_grad_(False)
        for parameter in model.parameters():
            parameter.normal_(0, 0.35)
        return model


CASES = [
    Case("gpt2", "GPT2Config"),
    Case("gpt_neox", "GPTNeoXConfig", {"rope_parameters": {"rope_theta": 50.0, "partial_rotary_factor": 0.34}}),
    Case("gpt_neox whole", "GPTNeoXConfig", {"rope_parameters": {"rope_theta": 50.0, "partial_rotary_factor": 1.0}, "attention_bias": False}),
    Case("llama", "LlamaConfig"),
    Case("llama grouped wide biased", "LlamaConfig", {**GROUPED, **WIDE, "attention_bias": True}),
    Case("llama one key head", "LlamaConfig", {**SINGLE, "rope_parameters": LLAMA3}),
    Case("llama linear", "LlamaConfig", {**GROUPED, "rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 3.0}}),
    Case("llama yarn", "LlamaConfig", {**GROUPED, "rope_parameters": YARN}),
    Case("mistral", "MistralConfig", {**GROUPED, **WIDE, "sliding_window": 3}),
    Case("mistral one key head", "MistralConfig", {**SINGLE, "sliding_window": None}),
    Case("qwen2", "Qwen2Config", {**GROUPED, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}),
    Case("qwen2 one key head", "Qwen2Config", {**SINGLE, "tie_word_embeddings": True}),
    Case("qwen3", "Qwen3Config", {**GROUPED, **WIDE, "attention_bias": True}),
    Case("qwen3 full", "Qwen3Config", {**WIDE, "num_key_value_heads": 4}),
    Case("gemma", "GemmaConfig", {**SINGLE, **WIDE}),
    Case("gemma grouped", "GemmaConfig", {**GROUPED, **WIDE, "attention_bias": True}),
    Case("gemma2", "Gemma2Config", {**GROUPED, **WIDE, "query_pre_attn_scalar": 7, "attn_logit_softcapping": 2.0, "sliding_window": 3}),
    Case("gemma3_text", "Gemma3TextConfig", {**SINGLE, **WIDE, "query_pre_attn_scalar": 7, "sliding_window": 3, "layer_types": TYPES}),
    Case("gemma3_text grouped", "Gemma3TextConfig", {**GROUPED, **WIDE, "sliding_window": 3, "layer_types": TYPES}),
    Case("phi3", "Phi3Config", {**GROUPED, "rope_parameters": {"rope_theta": 50.0, "rope_type": "default", "partial_rotary_factor": 0.7}}),
    Case("phi3 long window", "Phi3Config", {**SINGLE, "rope_parameters": LONG, "original_max_position_embeddings": 16, "sliding_window": 4}),
    Case("phi3 full", "Phi3Config"),
    Case("bert", "BertConfig"),
]


def case(name: str) -> Case:
    return next(c for c in CASES if c.name == name)

# SPDX-License-Identifier: Apache-2.0
"""A Llama small enough to train at once, with the weight names and the arithmetic of a ``LlamaForCausalLM`` file.

transformers has the same model, but importing it takes five seconds of two cores, as long as half of the training.
That both are the same is checked by the engine itself: it loads these weights and must give the trained answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Shape:
    """Sizes, named as in a model's config.json."""

    vocab_size: int
    hidden_size: int = 128
    intermediate_size: int = 256
    num_hidden_layers: int = 2
    num_attention_heads: int = 2
    head_dim: int = 64
    max_position_embeddings: int = 8192
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-6

    def config(self, *, eos_token_id: int, pad_token_id: int) -> dict[str, Any]:
        """The config.json that tells an engine how to run weights of this shape."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            **vars(self),
            "num_key_value_heads": self.num_attention_heads,
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": False,
            "bos_token_id": None,
            "eos_token_id": eos_token_id,
            "pad_token_id": pad_token_id,
            "torch_dtype": "bfloat16",
        }


class Attention(nn.Module):  # type: ignore[misc,unused-ignore]
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.head_dim = shape.head_dim
        width = shape.num_attention_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.hidden_size, width, bias=False)
        self.k_proj = nn.Linear(shape.hidden_size, width, bias=False)
        self.v_proj = nn.Linear(shape.hidden_size, width, bias=False)
        self.o_proj = nn.Linear(width, shape.hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        def heads(projection: nn.Linear) -> Tensor:
            return projection(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

        def rotated(y: Tensor) -> Tensor:
            first, second = y.chunk(2, dim=-1)
            return y * cos + torch.cat((-second, first), dim=-1) * sin

        q, k, v = rotated(heads(self.q_proj)), rotated(heads(self.k_proj)), heads(self.v_proj)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).flatten(-2))


class Mlp(nn.Module):  # type: ignore[misc,unused-ignore]
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.up_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.down_proj = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):  # type: ignore[misc,unused-ignore]
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.mlp = Mlp(shape)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Trunk(nn.Module):  # type: ignore[misc,unused-ignore]
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.num_hidden_layers))
        self.norm = nn.RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.shape = shape

    def forward(self, ids: Tensor) -> Tensor:
        shape = self.shape
        rates = shape.rope_theta ** -(torch.arange(0, shape.head_dim, 2) / shape.head_dim)
        angles = torch.outer(torch.arange(ids.shape[1]), rates).repeat(1, 2)
        x = self.embed_tokens(ids)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)


class Llama(nn.Module):  # type: ignore[misc,unused-ignore]
    """``model`` gives hidden states (B, T, H) for ids (B, T); ``lm_head`` turns any of them into logits (…, V)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Trunk(shape)
        self.lm_head = nn.Linear(shape.hidden_size, shape.vocab_size, bias=False)
        for weight in self.parameters():
            if weight.dim() > 1:  # the norms keep their ones
                nn.init.normal_(weight, std=0.02)

# SPDX-License-Identifier: Apache-2.0
"""How much KV cache a token of a model is, and how long its prefill takes."""

from __future__ import annotations

from dataclasses import dataclass

# Dense bfloat16 peak of an NVIDIA H100 SXM, and the part of it that long prefills reach.
_PEAK_FLOPS = 989e12
_USED = 0.4


@dataclass(frozen=True)
class Model:
    """A model on the accelerators that it usually runs on.

    Attributes:
        name: As --model takes it.
        parameters: Active for each token.
        kv_bytes: Of one token, all layers, 16 bits a number.
        gpus: H100s that share the prefill.
    """

    name: str
    parameters: float
    kv_bytes: int
    gpus: int

    @property
    def prefill_rate(self) -> float:
        """Prompt tokens a second: two operations for each parameter and token.

        Attention over the prompt comes on top, so long prompts are slower than this, and what a
        hit saves is more.
        """
        return self.gpus * _PEAK_FLOPS * _USED / (2 * self.parameters)


def _kv(layers: int, heads: int, width: int) -> int:
    return layers * heads * width * 2 * 2


MODELS = {
    model.name: model
    for model in (
        Model("llama-3.1-8b", 8.03e9, _kv(32, 8, 128), 1),
        Model("llama-3.1-70b", 70.6e9, _kv(80, 8, 128), 4),
        Model("llama-3.1-405b", 405.9e9, _kv(126, 8, 128), 8),
        Model("mistral-7b", 7.25e9, _kv(32, 8, 128), 1),
        Model("qwen2.5-7b", 7.62e9, _kv(28, 4, 128), 1),
        Model("qwen2.5-32b", 32.8e9, _kv(64, 8, 128), 2),
        Model("qwen2.5-72b", 72.7e9, _kv(80, 8, 128), 4),
    )
}
ASSUMPTION = (
    "prefill of 2 operations a parameter and token at 40 % of 989 TFLOP/s on each H100; attention "
    "over the prompt is left out, so long prompts save more"
)

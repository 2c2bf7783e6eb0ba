"""Small random models of transformers, with attn_implementation "onepass" and with "eager"."""

import functools
from collections.abc import Callable
from typing import Any

import torch
import transformers
from suites.case import Case, Refusal

from onepass.torch import transformers as ours

TOKENS = 12  # that are generated

_SIZES = {
    "vocab_size": 97, "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 128,
    "pad_token_id": 0, "initializer_range": 0.2,  # for weights that are far from even
}  # fmt: skip
_GROUPED = _SIZES | {"num_key_value_heads": 2, "head_dim": 16}
_CAUSAL, _MASKED, _PAIR = "AutoModelForCausalLM", "AutoModelForMaskedLM", "AutoModelForSeq2SeqLM"

# What a family has that the others have not; its class; its sizes.
FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "Llama": ("grouped heads", _CAUSAL, _GROUPED),
    "Mistral": ("a window", _CAUSAL, _GROUPED | {"sliding_window": 8}),
    "Gemma2": (
        "a softcap, a window in every other layer", _CAUSAL,
        _GROUPED | {"attn_logit_softcapping": 5.0, "sliding_window": 8},
    ),
    "GptOss": (
        "sinks, a window in every other layer", _CAUSAL,
        _GROUPED | {"sliding_window": 8, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    "GPT2": (
        "learned positions", _CAUSAL,
        {"vocab_size": 97, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128,
         "initializer_range": 0.2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
    ),
    "Bert": ("an encoder", _MASKED, _SIZES),
    "T5": (
        "a position bias, cross-attention", _PAIR,
        {"vocab_size": 97, "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": 4,
         "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0},
    ),
}  # fmt: skip


def cases() -> list[Case]:
    return [case for family in FAMILIES for case in cases_of(family)]


def cases_of(family: str) -> list[Case]:
    kind = FAMILIES[family][1]
    made = []
    for padded in (False, True):
        where = ", padded" if padded else ""
        logits = functools.partial(_logits, family, padded)
        made.append(_case(family, f"logits{where}", logits, _close))
        if kind != _MASKED:
            tokens = functools.partial(_generated, family, padded)
            made.append(_case(family, f"{TOKENS} tokens{where}", tokens, _equal))
    # GPT-2's layers do not pass on that their weights are asked for, and none but the eager
    # ones return them.
    if family != "GPT2":
        refusal = Refusal(
            "the weights: they are never in memory", NotImplementedError, "output_attentions"
        )
        weights = functools.partial(_logits, family, False, "onepass", output_attentions=True)
        made.append(_refused(family, "weights", weights, refusal))
    made.append(_case(family, "gradients", functools.partial(_gradients, family), _close))
    if "dropout" in repr(_model(family, "onepass")):
        refusal = Refusal("training with dropout", NotImplementedError, "dropout")
        dropping = functools.partial(_gradients, family, "onepass", training=True)
        made.append(_refused(family, "dropout", dropping, refusal))
    return made


def _case(
    family: str, name: str, run: Callable[[str], torch.Tensor], compare: Callable[..., None]
) -> Case:
    check = lambda result: compare(result, run("eager"))  # noqa: E731
    return Case(family, name, functools.partial(run, "onepass"), check, part=FAMILIES[family][0])


def _refused(family: str, name: str, run: Callable[[], torch.Tensor], refusal: Refusal) -> Case:
    return Case(family, name, run, lambda result: None, refusal, part=FAMILIES[family][0])


def _close(result: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)


def _equal(result: torch.Tensor, expected: torch.Tensor) -> None:
    assert torch.equal(result, expected)


@functools.cache
def _model(family: str, implementation: str) -> Any:
    transformers.logging.set_verbosity_error()
    ours.register()
    _, kind, sizes = FAMILIES[family]
    config = getattr(transformers, f"{family}Config")(**sizes)  # a model keeps it and writes to it
    torch.manual_seed(0)
    model = (
        getattr(transformers, kind).from_config(config, attn_implementation=implementation).eval()
    )
    assert model.config._attn_implementation == implementation
    return model


def _inputs(padded: bool) -> dict[str, torch.Tensor]:
    tokens = torch.randint(3, 97, (3, 20), generator=torch.Generator().manual_seed(3))
    seen = torch.ones_like(tokens)
    if padded:
        seen[0, :7] = seen[2, :1] = 0
    return {"input_ids": tokens * seen, "attention_mask": seen}


def _logits(family: str, padded: bool, implementation: str, **options: Any) -> torch.Tensor:
    inputs = _inputs(padded)
    seen = inputs["attention_mask"].bool()
    if FAMILIES[family][1] == _PAIR:
        options["decoder_input_ids"] = _inputs(False)["input_ids"][:, :9]
        seen = seen.new_ones(3, 9)
    with torch.no_grad():
        return _model(family, implementation)(**inputs, **options).logits[seen]


def _generated(family: str, padded: bool, implementation: str) -> torch.Tensor:
    lengths = {"max_new_tokens": TOKENS, "min_new_tokens": TOKENS}
    return _model(family, implementation).generate(**_inputs(padded), do_sample=False, **lengths)


def _gradients(family: str, implementation: str, training: bool = False) -> torch.Tensor:
    """Of all parameters after one step. Outside of training nothing is dropped."""
    model = _model(family, implementation).train(training)
    tokens = _inputs(False)["input_ids"]
    try:
        model.zero_grad()
        model(input_ids=tokens, labels=tokens).loss.backward()
        grads = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
        return torch.cat(grads)
    finally:
        model.eval()
        model.zero_grad()

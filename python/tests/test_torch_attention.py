"""Attention as an operator of PyTorch, and as an implementation that models of transformers use."""

import functools

import pytest
from conftest import has, skip_without_gradients

torch = pytest.importorskip("torch", reason="wants torch")

import torch.nn.functional as F  # noqa: E402, N812

import onepass.torch  # noqa: E402
from onepass.torch import transformers as ours  # noqa: E402

DTYPES = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def inputs(device, queries=6, keys=6, dtype=torch.float32, heads=4, kv_heads=2, dim=16):
    torch.manual_seed(7)
    shapes = ((2, heads, queries, dim), (2, kv_heads, keys, dim), (2, kv_heads, keys, dim))
    return [torch.randn(shape, device=device).to(dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [False, True])
def test_as_torch_does(causal, dtype, device):
    q, k, v = inputs(device, 70, 70, dtype)
    wide = [tensor.double() for tensor in (q, k, v)]
    expected = F.scaled_dot_product_attention(*wide, is_causal=causal, enable_gqa=True)
    o = onepass.torch.attention(q, k, v, causal=causal)
    assert o.dtype == dtype
    torch.testing.assert_close(o.double(), expected, rtol=DTYPES[dtype], atol=DTYPES[dtype])


@pytest.mark.parametrize("bias", [False, True])
def test_masks(bias, device):
    q, k, v = inputs(device, 5, 9)
    mask = torch.randn(2, 1, 5, 9, device=device)
    mask = mask if bias else (mask > -1) | (torch.arange(9, device=device) == 0)
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
    torch.testing.assert_close(onepass.torch.attention(q, k, v, mask=mask), expected)


def test_tokens_before_heads(device):
    q, k, v = inputs(device, 5, 9)
    o, lse = onepass.torch.attention(q, k, v, return_lse=True)
    other = [tensor.transpose(1, 2) for tensor in (q, k, v)]
    turned, same = onepass.torch.attention(*other, layout="bshd", return_lse=True)
    assert turned.is_contiguous()
    torch.testing.assert_close(turned, o.transpose(1, 2))
    torch.testing.assert_close(same, lse)


def test_the_function_without_gradients_refuses_them(device):
    q, k, v = inputs(device)
    o = onepass.torch.attention(q, k, v)
    q.requires_grad_()
    with pytest.raises(TypeError, match="q: requires grad"):
        onepass.attention(q, k, v)
    with torch.no_grad():
        torch.testing.assert_close(onepass.torch.attention(q, k, v), o)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(dynamic, device):
    def step(q, k, v, lengths):
        whole = onepass.torch.attention(
            q * 2, k, v, causal=True, lengths=lengths, window=(4, -1), softcap=20.0
        )
        left = onepass.torch.attention(q, k[:, :, :2], v[:, :, :2], return_lse=True)
        right = onepass.torch.attention(q, k[:, :, 2:], v[:, :, 2:], return_lse=True)
        return whole + 1, *onepass.torch.merge_attention(*left, *right)

    compiled = torch.compile(step, fullgraph=True, dynamic=dynamic)
    for keys in (6, 9):
        q, k, v = inputs(device, 5, keys)
        lengths = torch.tensor([5, keys], device=device)
        got = compiled(q, k, v, lengths)
        torch.testing.assert_close(got, step(q, k, v, lengths))
        torch.testing.assert_close(got[1], onepass.torch.attention(q, k, v))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="wants a GPU")
@pytest.mark.parametrize("queries", [1, 64])  # with one, keys are cut and workspace is needed
def test_cuda_graph(queries):
    q, k, v = inputs("cuda", queries, 4096, torch.bfloat16, dim=64)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = onepass.torch.attention(q, k, v, causal=True)
    for _ in range(2):
        q.normal_()
        graph.replay()
        torch.testing.assert_close(o, onepass.attention(q, k, v, causal=True))


# Hugging Face transformers.

needs_transformers = pytest.mark.skipif(not has("transformers"), reason="wants transformers")


@functools.cache
def model_of(family, device, dtype, **changes):
    """Two models with the same random weights, ours and with SDPA (or eager, where that
    cannot do it)."""
    import transformers

    ours.register()
    sizes = {
        "vocab_size": 97, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "max_position_embeddings": 128, "pad_token_id": 0,
        "initializer_range": 0.2,  # enough for weights that are far from even
    }  # fmt: skip

    def build(implementation):
        # A model keeps its config and writes to it.
        config = getattr(transformers, f"{family}Config")(**(sizes | changes))
        torch.manual_seed(0)
        return transformers.AutoModelForCausalLM.from_config(
            config, attn_implementation=implementation
        )

    mine, theirs = build("onepass"), build("eager" if family == "Gemma2" else "sdpa")
    assert "onepass" == mine.config._attn_implementation != theirs.config._attn_implementation
    mine.load_state_dict(theirs.state_dict())
    return tuple(model.to(device, dtype).eval() for model in (mine, theirs))


def prompt(device, padded):
    tokens = torch.randint(1, 97, (3, 20), generator=torch.Generator().manual_seed(3))
    seen = torch.ones_like(tokens)
    if padded:
        seen[0, :7] = seen[2, :1] = 0
    return {"input_ids": (tokens * seen).to(device), "attention_mask": seen.to(device)}


def generate(model, inputs, **options):
    return model.generate(
        **inputs, do_sample=False, max_new_tokens=24, min_new_tokens=24, **options
    )


@needs_transformers
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("Llama", {}),
        ("Mistral", {"sliding_window": 8}),
        ("Gemma2", {"attn_logit_softcapping": 5.0, "sliding_window": 8}),
    ],
    ids=["Llama", "Mistral, window", "Gemma2, softcap"],
)
def test_the_same_tokens(family, changes, padded, device):
    mine, theirs = model_of(family, device, torch.float32, **changes)
    inputs = prompt(device, padded)
    torch.testing.assert_close(generate(mine, inputs), generate(theirs, inputs))
    with torch.no_grad():
        logits, expected = (model(**inputs).logits[:, -1] for model in (mine, theirs))
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)


@needs_transformers
def test_the_same_tokens_with_a_static_cache(device):
    mine, theirs = model_of("Llama", device, torch.float32)
    inputs = prompt(device, False)
    options = {"cache_implementation": "static", "disable_compile": True}
    torch.testing.assert_close(generate(mine, inputs, **options), generate(theirs, inputs))


@needs_transformers
def test_a_compiled_model(device):
    mine, theirs = model_of("Llama", device, torch.float32)
    inputs = prompt(device, True)
    with torch.no_grad():
        logits = torch.compile(mine, fullgraph=True)(**inputs, use_cache=False).logits
        expected = theirs(**inputs).logits
    torch.testing.assert_close(logits[:, -1], expected[:, -1], rtol=1e-4, atol=1e-4)


@needs_transformers
@pytest.mark.parametrize("padded", [False, True])
def test_logits_in_bf16(padded, device):
    mine, theirs = model_of("Llama", device, torch.bfloat16, head_dim=64)
    exact = model_of("Llama", device, torch.float32, head_dim=64)[1]
    inputs = prompt(device, padded)
    with torch.no_grad():
        logits, sdpa, wanted = (
            model(**inputs).logits[:, -1].float() for model in (mine, theirs, exact)
        )
    assert (logits - sdpa).norm() < 0.03 * wanted.norm()
    assert (logits - wanted).norm() < 1.5 * (sdpa - wanted).norm(), (
        "no further from float32 than SDPA is"
    )


def one_step(model, inputs, compiled=False):
    """The loss of the tokens that a seen one precedes, and each parameter's gradient."""
    unseen = inputs["attention_mask"] == 0
    labels = inputs["input_ids"].masked_fill(unseen | unseen.roll(1, 1), -100)
    model.train().zero_grad()
    run = torch.compile(model, fullgraph=True) if compiled else model
    try:
        loss = run(**inputs, labels=labels, use_cache=False).loss
        loss.backward()
    finally:
        model.eval()
    return loss.detach(), {name: p.grad.clone() for name, p in model.named_parameters()}


def same_step(mine, theirs, tolerance):
    torch.testing.assert_close(mine[0], theirs[0], rtol=tolerance, atol=tolerance)
    for name, gradient in theirs[1].items():
        off = (mine[1][name].float() - gradient.float()).norm()
        assert off <= tolerance * gradient.float().norm(), name


@needs_transformers
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("Llama", {}),
        ("Mistral", {"sliding_window": 8}),
        ("Gemma2", {"attn_logit_softcapping": 5.0}),
    ],
    ids=["Llama", "Mistral, window", "Gemma2, softcap"],
)
def test_a_step_of_training(family, changes, padded, device):
    skip_without_gradients(device)
    mine, theirs = model_of(family, device, torch.float32, **changes)
    inputs = prompt(device, padded)
    same_step(one_step(mine, inputs), one_step(theirs, inputs), 1e-4)


@needs_transformers
@pytest.mark.parametrize("way", ["compiled", "checkpointed", "autocast"])
def test_other_ways_to_train(way, device):
    skip_without_gradients(device)
    mine, theirs = model_of("Llama", device, torch.float32, head_dim=32)
    inputs = prompt(device, True)
    if way == "checkpointed":
        mine.gradient_checkpointing_enable()
    with torch.autocast(device, torch.bfloat16, enabled=way == "autocast"):
        steps = one_step(mine, inputs, way == "compiled"), one_step(theirs, inputs)
    if way == "checkpointed":
        mine.gradient_checkpointing_disable()
    same_step(*steps, 0.05 if way == "autocast" else 1e-4)


@needs_transformers
def test_models_say_what_cannot_be(device):
    mine, _ = model_of("Llama", device, torch.float32)
    dropping, _ = model_of("Llama", device, torch.float32, attention_dropout=0.1)
    with pytest.raises(NotImplementedError, match="dropout: 0.1, and onepass has none"):
        one_step(dropping, prompt(device, False))
    q, k, v = inputs(device)
    with pytest.raises(NotImplementedError, match="dropout: 0.1"):
        ours.forward(mine, q, k, v, None, dropout=0.1)
    with pytest.raises(NotImplementedError, match="output_attentions: True"), torch.no_grad():
        mine(**prompt(device, False), output_attentions=True)


def test_layers_of_other_sorts(device):
    """A position bias, sinks, a cache with room, no diagonal: as eager attention has them."""
    module = torch.nn.Identity()
    q, k, v = inputs(device, 5, 9)
    bias = torch.randn(1, 4, 5, 9, device=device)
    o, weights = ours.forward(module, q, k, v, None, position_bias=bias, is_causal=False)
    expected = F.scaled_dot_product_attention(
        q, k, v, attn_mask=bias.expand(2, -1, -1, -1), enable_gqa=True
    )
    torch.testing.assert_close(o, expected.transpose(1, 2))
    assert weights is None
    o, _ = ours.forward(
        module, q, k, v, None, position_bias=bias, s_aux=torch.full((4,), -torch.inf, device=device)
    )
    mask = bias[..., :5].masked_fill(torch.ones(5, 5, device=device).triu(1).bool(), -torch.inf)
    expected = F.scaled_dot_product_attention(
        q, k[:, :, :5], v[:, :, :5], attn_mask=mask, enable_gqa=True
    )
    torch.testing.assert_close(o, expected.transpose(1, 2))

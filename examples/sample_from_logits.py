"""Sample from logits, in five lines."""

import numpy as np

import onepass

logits = np.random.default_rng(0).normal(size=(4, 50257)).astype(np.float32)  # a row a sequence
for step in range(3):
    tokens, logprobs = onepass.sample(
        logits, temperature=0.8, top_k=50, top_p=0.95, seed=7, offset=step, return_logprob=True
    )
    print(tokens, logprobs.round(2))

#!/usr/bin/env python3
"""Prints random problems of attention_backward, a line each, for `onepass verify --workload`.

    scripts/random_problems.py --count 500 --seed 1 > build/random.txt
    build/release/cli/onepass verify --device cuda --workload build/random.txt

The same seed gives the same lines. Every option is drawn with every other: GQA, varlen, lengths,
masks, windows, layouts, dtypes, dims and lengths that fit no tile. A problem is small enough for
its float64 reference to take a fraction of a second, and valid on a CPU and on a GPU."""

import argparse
import random

WORK = 6e6  # products of two elements, of all queries with all keys
ELEMENTS = 3e5  # of an additive mask, the largest array


class Draw:
    """Built on random() alone, whose sequence Python keeps from version to version."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed).random

    def below(self, count: int) -> int:
        return int(self.random() * count)

    def one_in(self, count: int) -> bool:
        return self.below(count) == 0

    def pick(self, *choices):
        return choices[self.below(len(choices))]

    def length(self, most: int) -> int:
        """Few, or near a whole number of tiles, or any."""
        near = self.pick(16, 32, 64, 128, 192, 256, 384, 512, 768, 1024) + self.below(5) - 2
        length = self.pick(1 + self.below(20), near, near, 1 + self.below(700))
        return max(1, min(length, most))


def masks(draw: Draw) -> list[str]:
    kinds = [
        kind
        for kind, seldom in [("additive", 4), ("boolean", 4), ("lengths", 3), ("causal", 2)]
        if draw.one_in(seldom)
    ]
    words = ["mask=" + "+".join(kinds)] if kinds else []
    if ("additive" in kinds or "boolean" in kinds) and draw.one_in(2):
        words.append("broadcast")
    if draw.one_in(4):
        sides = [draw.pick(-1, 0, draw.below(16), draw.below(300)) for _ in range(2)]
        words.append("window={},{}".format(*sides))
    if "additive" in kinds and draw.one_in(2):
        words.append("d_additive")
    return words


def flags(draw: Draw) -> list[str]:
    words = [word for word in ("alibi", "offsets", "d_lse", "accumulate", "bshd") if draw.one_in(3)]
    if draw.one_in(3):
        words += ["sinks"] + ["d_sinks"] * draw.one_in(2)
    if draw.one_in(5):
        words.append(f"scale={draw.pick(1, 0.5, -0.25, 0.05)}")
    if draw.one_in(4):
        words.append(f"softcap={draw.pick(1, 20, 50)}")
    if draw.one_in(6):
        words.append(f"pad={draw.pick(1, 8)}")
    if draw.one_in(6):
        words.append(f"offset={draw.pick(1, 2, 8)}")
    if draw.one_in(8):
        words.append(f"out_offset={draw.pick(0, 1, 4)}")
    return words


def problem(draw: Draw) -> str:
    dim = draw.pick(64, 64, 128, 128, 8 * (1 + draw.below(32)), 256, 96, 192)
    kv_heads = draw.pick(1, 1, 2, 3)
    heads = kv_heads * draw.pick(1, 1, 2, 4, 5, 8)
    batch = draw.pick(1, 1, 2, 3, 5)
    options = masks(draw) + flags(draw)
    most = WORK / dim / heads / batch
    if any("additive" in word or "boolean" in word for word in options):
        most = min(most, ELEMENTS / heads / batch / (batch if "offsets" in options else 1))
    queries = draw.length(int(most))
    words = []
    if draw.one_in(2):
        words.append(f"keys={draw.length(int(most / queries))}")
    else:
        queries = min(queries, int(most**0.5))
    if heads != kv_heads:
        words.append(f"kv_heads={kv_heads}")
    dtype = draw.pick("f16", "bf16", "f16", "bf16", "f32", "f16:f32", "bf16:f32")
    shape = f"{batch}x{heads}x{queries}x{dim}"
    return " ".join(["attention_backward", shape, dtype, *words, *options])


def problems(count: int, seed: int) -> list[str]:
    draw = Draw(seed)
    return [f"{problem(draw)} seed={i + 1}" for i in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    print(f"# scripts/random_problems.py --count {args.count} --seed {args.seed}")
    print("\n".join(problems(args.count, args.seed)))


if __name__ == "__main__":
    main()

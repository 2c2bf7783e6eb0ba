"""What ours is of ONNX's Attention."""

import math
from typing import Any

import numpy as np
from suites.case import Case, Refusal
from suites.onnx_nodes import Node

import onepass


def attention(node: Node) -> Case:
    return _Mapping(node).case()


class _Mapping:
    """Our arguments: `straight` as the node has them, `options` with what has to be
    done about them."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.refusals: list[Refusal] = []
        self.adapted: list[str] = []
        self.layout = "bshd" if node.inputs["Q"].ndim == 3 else "bhsd"
        self.tokens = self.layout.index("s")
        self.arrays = self._heads()
        self._put_past_first()
        self.narrow = self.arrays
        self.straight = {
            name: node.attributes[name] for name in ("scale", "softcap") if name in node.attributes
        }
        self.straight["layout"] = self.layout
        if "nonpad_kv_seqlen" in node.inputs:
            self.straight["lengths"] = node.inputs["nonpad_kv_seqlen"]
        self.options: dict[str, Any] = dict(self.straight)
        self._fill_mask()
        self._place_queries()
        self._fill_heads()

    def _heads(self) -> list[np.ndarray]:
        """q, k and v with their heads as a dimension."""
        arrays = [self.node.inputs[name] for name in "QKV"]
        if self.layout == "bhsd":
            return arrays
        heads = [
            self.node.attributes[name] for name in ("q_num_heads", "kv_num_heads", "kv_num_heads")
        ]
        return [array.reshape(*array.shape[:2], count, -1) for array, count in zip(arrays, heads)]

    def _put_past_first(self) -> None:
        if "past_key" not in self.node.inputs:
            return
        past = [self.node.inputs[name] for name in ("past_key", "past_value")]
        past = past if self.layout == "bhsd" else [array.swapaxes(1, 2) for array in past]
        self.arrays[1:] = [np.concatenate(pair, self.tokens) for pair in zip(past, self.arrays[1:])]
        self.adapted.append(
            "the caller concatenates past and keys: ours has one cache, with `lengths`"
        )

    def _fill_mask(self) -> None:
        if "attn_mask" not in self.node.inputs:
            return
        self.straight["mask"] = mask = self.node.inputs["attn_mask"]
        missing = self.arrays[1].shape[self.tokens] - mask.shape[-1]
        if missing and mask.shape[-1] != 1:
            self.refusals.append(Refusal("a mask of fewer keys than there are", ValueError, "mask"))
            self.adapted.append("the mask is padded: ours covers all keys")
            fill = False if mask.dtype == bool else -np.inf
            mask = np.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, missing)], constant_values=fill)
        self.options["mask"] = mask

    def _place_queries(self) -> None:
        """Ours has query q of Q at key q + K − Q. So has theirs where lengths are given; else it
        is at q + past."""
        attributes, inputs = self.node.attributes, self.node.inputs
        causal = bool(attributes.get("is_causal", 0))
        left, right = (attributes.get(f"{side}_window_size", -1) for side in ("left", "right"))
        place = {"causal": causal, "window": (left, right)}
        self.straight |= place
        queries, keys = (array.shape[self.tokens] for array in self.arrays[:2])
        past = inputs["past_key"].shape[2] if "past_key" in inputs else 0
        if (
            not causal
            and (left, right) == (-1, -1)
            or "lengths" in self.options
            or past + queries == keys
        ):
            self.options |= place
            return
        ahead = np.arange(keys) - np.arange(queries)[:, None] - past
        first, last = (-left if left >= 0 else -np.inf), (right if right >= 0 else np.inf)
        visible = (ahead >= first) & (ahead <= (min(last, 0) if causal else last))
        mask = self.options.get("mask")
        if mask is None:
            self.options["mask"] = visible
        else:
            self.options["mask"] = mask & visible if mask.dtype == bool else (visible, mask)
        self.adapted.append(
            "the diagonal is given as a mask: ours ends at the last key, theirs begins at the first"
        )

    def _fill_heads(self) -> None:
        q, _, v = self.arrays
        if q.shape[-1] % 8 == v.shape[-1] % 8 == 0:
            return
        self.options.setdefault("scale", 1 / math.sqrt(q.shape[-1]))
        self.arrays = [
            np.pad(array, [(0, 0)] * 3 + [(0, -array.shape[-1] % 8)]) for array in self.arrays
        ]
        # Before the mask's: dims are looked at first.
        says = "q: dim" if q.shape[-1] % 8 else "v: dim"
        self.refusals.insert(0, Refusal("a dim that 8 does not divide", ValueError, says))
        self.adapted.append("heads are padded with zeros: dims of ours are multiples of 8")

    def _call(self, arrays: list[np.ndarray], options: dict[str, Any]) -> np.ndarray:
        o = onepass.attention(*arrays, **options)
        return o[..., : self.narrow[2].shape[-1]].reshape(self.node.outputs["Y"].shape)

    def case(self) -> Case:
        def instead() -> np.ndarray:
            return self._call(self.arrays, self.options)

        def straight() -> np.ndarray:
            return self._call(self.narrow, self.straight)

        if "qk_matmul_output" in self.node.outputs:
            self.straight["qk_matmul_output_mode"] = self.node.attributes.get(
                "qk_matmul_output_mode", 0
            )
            why = "the scores as an output: they are never in memory"
            return self.node.case(
                straight, refusal=Refusal(why, TypeError, "qk_matmul_output_mode"), instead=instead
            )
        if self.refusals:
            return self.node.case(
                straight, refusal=self.refusals[0], adapted=tuple(self.adapted), instead=instead
            )
        return self.node.case(instead, adapted=tuple(self.adapted))

// Attention: o = softmax(z) · v in one pass that never writes the scores z to memory.
//
//     z = softcap(q·k · scale) − slope·|distance| + additive mask
//     softcap(v) = cap · tanh(v / cap)
//
// and z = −inf where a boolean, length, causal or window mask hides the key. A query that sees no
// key gives zeros and lse −inf; a NaN that a query sees makes its o NaN (docs/numerics.md). Sums
// are float32, of float64 inputs float64.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "onepass/context.hpp"
#include "onepass/options.hpp"
#include "onepass/plan.hpp"
#include "onepass/status.hpp"
#include "onepass/tensor.hpp"

namespace onepass {

struct AttentionOptions {
  std::optional<double> scale{};  // none: 1 / √dim
  double softcap = 0;             // 0: none

  // Its tensors broadcast to batch × heads × queries × keys, or with offsets to all tokens of q and
  // of k. `lengths` counts the keys of each sequence, and the causal diagonal ends at the last of
  // them: query q of Q stands at key q + length − Q.
  Mask mask{};
  // Floating slopes, one per head, or batch × heads: subtracts slope · |key − the query's own key|
  // from z.
  ConstTensor alibi{};
  // Floating, one per head: one more logit for every query, without a value. It counts in the lse.
  ConstTensor sinks{};

  // Varlen (cu_seqlens): batch + 1 ascending positions from 0, i32 or i64. q, or k and v, then have
  // no batch dimension, and sequence b is its tokens offsets[b] to offsets[b + 1] − 1.
  ConstTensor q_offsets{};
  ConstTensor kv_offsets{};

  // Paged KV, the block table: i32, batch × the most pages of any sequence. k and v are then
  // pages × kv heads × page size × dim, key t of sequence b is token t mod page size of page
  // pages[b][t / page size], and mask.lengths, then required, counts the keys. Entries past a
  // sequence's length may hold anything.
  ConstTensor pages{};
  // On a GPU: a query that sees keys of a page outside k gives NaN, and no such page is read. On a
  // CPU such a page is always an error.
  bool check_pages = false;

  std::int64_t split = 0;  // split-KV: keys per partition; 0: the dispatcher decides
  Tensor lse{};            // optional output, f32 or f64: q's shape without the last dimension
  std::string_view variant{};
  Plan* plan = nullptr;
  bool batch_invariant = false;  // a query's bits do not depend on the rest of the batch
};

// q and o are batch × heads × queries × dim, k and v batch × kv heads × keys × dim; with offsets,
// heads × tokens × dim. GQA: kv heads divides heads, and head h attends to kv head
// h / (heads / kv heads). Any strides, except that the last dimension's is 1: memory laid out as
// batch × queries × heads × dim needs other strides, not a copy. q, k and v share one dtype, f32,
// f16, bf16 or, on a CPU, f64; o has any of these. dim is a multiple of 8, up to 512; on a CPU v
// and o may have another than q and k.
Status attention(const Context& context, ConstTensor q, ConstTensor k, ConstTensor v, Tensor o,
                 const AttentionOptions& options = {});

// For attention_backward. Pass the forward's options.
struct AttentionBackwardOptions {
  std::optional<double> scale{};  // none: 1 / √dim
  double softcap = 0;             // 0: none
  Mask mask{};
  ConstTensor alibi{};  // the slopes have no gradient
  ConstTensor sinks{};
  ConstTensor q_offsets{};
  ConstTensor kv_offsets{};
  ConstTensor pages{};  // refused: keys in pages have no gradient

  ConstTensor d_lse{};  // the gradient of lse, f32 or f64, in its shape; absent: 0
  // Optional outputs, floating: the gradients of sinks and of mask.additive, in their shapes. Where
  // the mask broadcasts, its gradient is a sum.
  Tensor d_sinks{};
  Tensor d_additive{};

  bool accumulate = false;       // adds to what d_q, d_k and d_v hold
  bool batch_invariant = false;  // a gradient's bits do not depend on the rest of the batch
  // The same bits on every run. Without it a variant may sum in any order; none does so far.
  bool deterministic = true;
  std::string_view variant{};
  Plan* plan = nullptr;
};

// The gradients d_q, d_k and d_v from d_o, the gradient of o. q, k, v, o and lse are the forward's
// inputs and results, lse included: it replaces the weights, which were never in memory. Shapes are
// those of the forward, d_o's that of o, and each gradient's that of its tensor. o and d_o may have
// any floating dtype; d_q, d_k and d_v share one, that of q or f32. GQA: gradients of shared heads
// are summed. A query that sees no key, and a key that no query sees, have gradient 0. On a
// GPU q, k and v are f32, f16 or bf16.
Status attention_backward(const Context& context, ConstTensor q, ConstTensor k, ConstTensor v,
                          ConstTensor o, ConstTensor lse, ConstTensor d_o, Tensor d_q, Tensor d_k,
                          Tensor d_v, const AttentionBackwardOptions& options = {});

// Merges the results (a, lse_a) and (b, lse_b) of the same queries over different keys into the o
// and lse over all these keys. a, b and o have one shape; each lse has it without the last
// dimension. o may be a or b, and lse may be lse_a or lse_b.
Status merge_attention(const Context& context, ConstTensor a, ConstTensor lse_a, ConstTensor b,
                       ConstTensor lse_b, Tensor o, Tensor lse = {});

// The gradients of both results and of their lse from d_o, the gradient of the merged o, and d_lse,
// that of the merged lse, which may be absent. Each gradient has its tensor's shape.
Status merge_attention_backward(const Context& context, ConstTensor a, ConstTensor lse_a,
                                ConstTensor b, ConstTensor lse_b, ConstTensor d_o,
                                ConstTensor d_lse, Tensor d_a, Tensor d_lse_a, Tensor d_b,
                                Tensor d_lse_b);

}  // namespace onepass

// Attention: o = softmax(z) · v, with z made from q · k in the same pass, never in memory.
//
//     z = softcap(q·k · scale) − slope·|distance| + additive mask
//     softcap(v) = cap · tanh(v / cap)
//
// and −inf where a boolean, length, causal or window mask hides the key. A query that sees no key
// gives zeros and lse −inf; a NaN that a query sees makes its own o NaN. Sums are float32.
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

  // Its tensors broadcast to batch × heads × queries × keys; `lengths` are keys, one a batch, and
  // the diagonal of a batch ends at its own length: query q of Q stands at key q + length − Q. With
  // offsets, the queries and keys of a mask's tensors are all the tokens of q and k.
  Mask mask{};
  // Floating slopes, one per head, or batch × heads: z is less by slope · |distance to the query's
  // key|.
  ConstTensor alibi{};
  // Floating, one per head: a logit of every query's that has no value. It counts in the lse.
  ConstTensor sinks{};

  // Sequences of different lengths side by side: batch + 1 places, i32 or i64, from 0 up. Sequence
  // b has the tokens from offsets[b] to offsets[b + 1] of a q (or a k and v) without a batch.
  ConstTensor q_offsets{};
  ConstTensor kv_offsets{};

  // Keys in pages: i32, batch × most pages of a sequence. k and v are then pages × kv heads × page
  // size × dim, key t of sequence b is token t mod page size of page pages[b][t / page size], and
  // mask.lengths says how many there are. An entry that no length reaches may be anything.
  ConstTensor pages{};
  bool check_pages = false;  // a page that is not there gives NaN to its queries, and is never read

  std::int64_t split = 0;  // keys a part where they are cut; 0: the dispatcher's choice
  Tensor lse{};            // optional output, f32 or f64: q's shape without the last dimension
  std::string_view variant{};
  Plan* plan = nullptr;
  bool batch_invariant = false;  // a query's bits do not depend on the batch
};

// q and o are batch × heads × queries × dim; k and v batch × kv heads × keys × dim, where kv heads
// divide heads: head h looks at kv head h / (heads / kv heads). Strides are free but for the last
// dimension's, which is 1: q of memory batch × queries × heads × dim is the same q with other
// strides. With offsets: heads × tokens × dim. The dtypes are one: f32, f16 or bf16; that of o is
// free among them. dim is a multiple of 8, up to 512.
Status attention(const Context& context, ConstTensor q, ConstTensor k, ConstTensor v, Tensor o,
                 const AttentionOptions& options = {});

// What two runs over different keys for the same queries found, as one: o and lse of all the
// keys. The o's are of one shape, the lse's are that without the last dimension; o may be a's or
// b's, and so may lse.
Status merge_attention(const Context& context, ConstTensor a, ConstTensor lse_a, ConstTensor b,
                       ConstTensor lse_b, Tensor o, Tensor lse = {});

}  // namespace onepass

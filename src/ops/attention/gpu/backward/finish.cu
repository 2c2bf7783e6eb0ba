// The last kernels of attention's backward, for all variants: zeros for tokens that take no part,
// and the gradients of sinks and of the additive mask, each summed by one owner in a fixed order.
// A call launches those that it needs.

#include <algorithm>

#include "core/cuda/dependent.cuh"
#include "core/try.hpp"
#include "merge/block.cuh"
#include "ops/attention/gpu/backward/pair.cuh"
#include "ops/attention/gpu/backward/variants.hpp"
#include "rows/packs.hpp"
#include "runtime/launch.cuh"

namespace onepass::ops::attention {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

// A token of every head.
__device__ inline void zero_token(const Heads& gradient, std::int64_t b, std::int64_t heads,
                                  std::int64_t token, int dim) {
  with_type_for<float>(gradient.dtype, [&]<class Stored>(Type<Stored>) {
    for (std::int64_t h = 0; h < heads; ++h) {
      auto* to = static_cast<Stored*>(gradient.data) + gradient.offset(b, h, token);
      for (int c = static_cast<int>(threadIdx.x % kWarp); c < dim; c += kWarp) {
        to[c] = store_as<Stored>(0.F);
      }
    }
  });
}

// The sequence that a token of k belongs to: the last whose offset is not past it, which is −1
// before the first and `batch` after the last.
__device__ inline std::int64_t sequence_at(const AttentionArgs& a, std::int64_t token) {
  std::int64_t low = 0, high = a.batch + 1;
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (a.kv_offsets[middle] <= token) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low - 1;
}

// Whether a token of k is among its sequence's keys, and there are queries.
__device__ inline bool takes_part(const AttentionArgs& a, std::int64_t b, std::int64_t token) {
  if (a.heads == 0 || b < 0 || b >= a.batch) return false;
  const Sequence s = sequence_of(a, b);
  return s.queries > 0 && token >= s.k_first && token < s.k_first + s.keys;
}

// A warp per token of k, then of q.
__global__ void __launch_bounds__(kThreads)
    zero_unused(const __grid_constant__ AttentionBackwardArgs a, std::int64_t key_tokens,
                std::int64_t query_tokens) {
  await_previous();
  const std::int64_t index =
      std::int64_t{blockIdx.x} * kWarps + static_cast<int>(threadIdx.x) / kWarp;
  if (index < key_tokens) {
    const bool packed = static_cast<bool>(a.kv_offsets);
    const std::int64_t entry = packed ? 0 : index / a.keys;
    const std::int64_t token = packed ? index : index % a.keys;
    if (takes_part(a, packed ? sequence_at(a, token) : entry, token)) return;
    zero_token(a.d_k, entry, a.kv_heads, token, a.dim);
    zero_token(a.d_v, entry, a.kv_heads, token, a.dim_v);
  } else if (index < key_tokens + query_tokens) {
    const std::int64_t token = index - key_tokens;
    if (token >= a.q_offsets[a.batch]) zero_token(a.d_q, 0, a.heads, token, a.dim);
  }
}

// A block per head.
__global__ void __launch_bounds__(kThreads)
    sum_sinks(const __grid_constant__ AttentionBackwardArgs a) {
  using Sum = BlockFold<Add<double>, kWarps>;
  __shared__ Sum::Scratch scratch;
  await_previous();
  const std::int64_t head = blockIdx.x;
  const auto sink = read_like<float>(a.sinks.data, a.sinks.dtype, a.sinks.offset(0, head, 0));
  std::int64_t tokens = a.queries, entries = a.batch;
  if (a.q_offsets) {  // those of all sequences
    tokens = std::clamp<std::int64_t>(a.q_offsets[a.batch], 0, a.queries);
    entries = 1;
  }
  double sum = 0;
  if (sink != minus_infinity<float>()) {
    for (std::int64_t i = threadIdx.x; i < entries * tokens; i += kThreads) {
      const BackwardRow row = backward_row(a, i / tokens, head, i % tokens);
      sum -= static_cast<double>(weight_of(sink, row) * row.mean);
    }
  }
  sum = Sum(scratch).once(sum);
  if (threadIdx.x == 0) {
    write_like(a.d_sinks.data, a.d_sinks.dtype, a.d_sinks.offset(0, head, 0), sum);
  }
}

// By a warp.
__device__ inline float product(const Heads& x, std::int64_t x_at, const Heads& y,
                                std::int64_t y_at, int dim) {
  float sum = 0;
  for (int c = static_cast<int>(threadIdx.x % kWarp); c < dim; c += kWarp) {
    sum = fmaf(read_like<float>(x.data, x.dtype, x_at + c),
               read_like<float>(y.data, y.dtype, y_at + c), sum);
  }
  return warp_fold(sum, Add<float>());
}

// An element of the mask's gradient, whose indices are 0 where the mask broadcasts.
struct MaskElement {
  std::int64_t batch, head, token, key;

  __device__ MaskElement(const AttentionBackwardArgs& a, std::int64_t index) {
    const auto next = [&](int axis) {
      const std::int64_t at = index % a.mask_shape[axis];
      index /= a.mask_shape[axis];
      return at;
    };
    key = next(3);
    token = next(2);
    head = next(1);
    batch = next(0);
  }
};

// The sum of dz over the keys of one query that share an element.
__device__ inline double sum_keys(const AttentionBackwardArgs& a, const MaskElement& element,
                                  const Sequence& s, std::int64_t b, int head, int query) {
  const QueryPairs pairs(a, s, sight_of(a, s), b, head, query);
  std::int64_t first = pairs.begin(), end = pairs.end();
  if (a.mask_shape[3] != 1) {
    const std::int64_t own = element.key - s.k_first;
    if (own < first || own >= end) return 0;
    first = own;
    end = own + 1;
  }
  const std::int64_t kv_head = head / (a.heads / a.kv_heads);
  const std::int64_t q = a.q.offset(b, head, s.q_first + query);
  const std::int64_t d_o = a.d_o.offset(b, head, s.q_first + query);
  double sum = 0;
  for (std::int64_t t = first; t < end; ++t) {
    const float score = product(a.q, q, a.k, key_offset(a, s, a.k, b, kv_head, t), a.dim);
    const float d_weight = product(a.d_o, d_o, a.v, key_offset(a, s, a.v, b, kv_head, t), a.dim_v);
    sum += static_cast<double>(pairs.at(static_cast<int>(t), score, d_weight).d_z);
  }
  return sum;
}

// Of the queries of all heads that share an element, every `parts`-th from `part` on.
__device__ inline double sum_queries(const AttentionBackwardArgs& a, const MaskElement& element,
                                     int part, int parts) {
  const bool all_batches = a.mask_shape[0] == 1, all_heads = a.mask_shape[1] == 1;
  const std::int64_t heads = all_heads ? a.heads : 1;
  const std::int64_t last = all_batches ? a.batch : element.batch + 1;
  double sum = 0;
  for (std::int64_t b = element.batch; b < last; ++b) {
    const Sequence s = sequence_of(a, b);
    std::int64_t first = 0, queries = s.queries;
    if (a.mask_shape[2] != 1) {
      first = element.token - s.q_first;
      if (first < 0 || first >= s.queries) continue;
      queries = 1;
    }
    for (std::int64_t i = part; i < heads * queries; i += parts) {
      sum += sum_keys(a, element, s, b, static_cast<int>(element.head + i / queries),
                      static_cast<int>(first + i % queries));
    }
  }
  return sum;
}

// `parts` warps per element: 1 or all of a block.
__global__ void __launch_bounds__(kThreads)
    sum_mask(const __grid_constant__ AttentionBackwardArgs a, std::int64_t elements, int parts) {
  __shared__ double sums[kWarps];
  await_previous();
  const auto warp = static_cast<int>(threadIdx.x) / kWarp;
  const auto lane = static_cast<int>(threadIdx.x) % kWarp;
  const int count = kWarps / parts;  // of elements that a block sums at a time
  for (std::int64_t first = std::int64_t{blockIdx.x} * count; first < elements;
       first += std::int64_t{gridDim.x} * count) {
    const std::int64_t index = first + warp / parts;
    const bool there = index < elements;
    const MaskElement element(a, there ? index : first);
    double sum = there ? sum_queries(a, element, warp % parts, parts) : 0;
    if (parts > 1) {
      if (lane == 0) sums[warp] = sum;
      __syncthreads();
      sum = 0;
      for (const double each : sums) sum += each;
      __syncthreads();
    }
    if (!there || lane != 0 || warp % parts != 0) continue;
    const Heads& to = a.d_additive;
    write_like(to.data, to.dtype,
               to.offset(element.batch, element.head, element.token) + element.key * to.key, sum);
  }
}

// Warps per element of the mask's gradient: all of a block where several queries share one.
int parts_of(const AttentionBackwardArgs& a) {
  const std::int64_t heads = a.mask_shape[1] == 1 ? a.heads : 1;
  const std::int64_t queries = a.mask_shape[2] == 1 ? a.queries : 1;
  return heads * queries >= kWarps ? kWarps : 1;
}

Status zero_tokens(const AttentionBackwardArgs& a, std::string_view variant) {
  const bool ragged = a.q_offsets || a.kv_offsets || a.lengths;
  const bool none = a.queries == 0 || a.heads == 0;
  const std::int64_t key_tokens = !ragged && !none ? 0 : a.keys * (a.kv_offsets ? 1 : a.batch);
  const std::int64_t query_tokens = a.q_offsets ? a.queries : 0;
  if (a.accumulate || key_tokens + query_tokens == 0) return {};
  return launch({.queue = a.queue,
                 .blocks = ceil_div(key_tokens + query_tokens, kWarps),
                 .threads = kThreads},
                variant, zero_unused, a, key_tokens, query_tokens);
}

}  // namespace

Status finish_backward(const AttentionBackwardArgs& a, std::string_view variant) {
  ONEPASS_TRY(zero_tokens(a, variant));
  if (a.d_sinks && a.heads > 0) {
    ONEPASS_TRY(
        launch({.queue = a.queue, .blocks = a.heads, .threads = kThreads}, variant, sum_sinks, a));
  }
  if (!a.d_additive) return {};
  const auto& shape = a.mask_shape;
  const std::int64_t elements = shape[0] * shape[1] * shape[2] * shape[3];
  if (elements == 0) return {};
  constexpr std::int64_t kMostBlocks = 1 << 20;  // more elements go round
  const int parts = parts_of(a);
  return launch({.queue = a.queue,
                 .blocks = std::min(ceil_div(elements, kWarps / parts), kMostBlocks),
                 .threads = kThreads},
                variant, sum_mask, a, elements, parts);
}

}  // namespace onepass::ops::attention

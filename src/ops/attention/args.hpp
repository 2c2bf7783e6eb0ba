// The checked arguments of attention, and which keys a query sees. Plain data: a kernel gets a
// copy.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/annotate.hpp"
#include "core/number.hpp"
#include "onepass/tensor.hpp"
#include "ops/attention/sight.hpp"
#include "runtime/queue.hpp"

namespace onepass {

// A tensor over batch × heads × tokens, with all strides in elements; broadcast dimensions have
// stride 0. A token's elements are adjacent: dim of them, or one, or for a mask one per key.
struct Heads {
  void* data = nullptr;  // null: absent. Inputs are never written through this.
  DType dtype = DType::f32;
  std::int64_t batch = 0, head = 0, token = 0;
  std::int64_t key = 0;  // of a mask: the stride of keys

  ONEPASS_HD explicit operator bool() const { return data != nullptr; }
  ONEPASS_HD std::int64_t offset(std::int64_t b, std::int64_t h, std::int64_t t) const {
    return b * batch + h * head + t * token;
  }
};

// Integers: one length per sequence, or batch + 1 offsets.
struct Places {
  const void* data = nullptr;
  DType dtype = DType::i32;

  ONEPASS_HD explicit operator bool() const { return data != nullptr; }
  ONEPASS_HD std::int64_t operator[](std::int64_t i) const {
    return read_like<std::int64_t>(data, dtype, i);
  }
};

// The block table: row b holds the pages of sequence b.
struct Pages {
  const std::int32_t* table = nullptr;
  std::int64_t stride = 0;  // between the rows of the table
  std::int64_t size = 1;    // tokens per page
  std::int64_t count = 0;   // pages of k and v
  bool checked = false;

  ONEPASS_HD explicit operator bool() const { return table != nullptr; }
};

struct AttentionArgs {
  std::int64_t batch = 0;
  std::int64_t heads = 0, kv_heads = 0;
  std::int64_t queries = 0;  // per sequence; with offsets, the tokens of q
  std::int64_t keys = 0;     // likewise of k; paged: the keys that the table has room for
  int dim = 0;               // of q and k
  int dim_v = 0;             // of v and o

  Heads q, k, v, o;  // paged: `batch` of k and v is the stride between pages
  Heads lse;
  Heads additive, boolean;  // tokens are queries, and `key` is the stride along them
  Heads alibi, sinks;       // one value per head
  Places q_offsets, kv_offsets, lengths;
  Pages pages;

  double scale = 1;
  double softcap = 0;
  bool causal = false;
  std::int64_t window_left = -1, window_right = -1;
  std::int64_t split = 0;  // keys per partition, as the caller asked; the plan decides

  Queue queue;                     // on a GPU
  std::byte* workspace = nullptr;  // on a GPU: plan.scratch_bytes of its memory
};

// A sequence of the batch: where its tokens begin and how many there are.
struct Sequence {
  std::int64_t q_first, queries;
  std::int64_t k_first, keys;
};

// The tokens of sequence b. In tensor masks, query q of the sequence is token q_first + q, and key
// t is token k_first + t. Invalid offsets and lengths are clamped, so that nothing outside the
// tensors is read.
ONEPASS_HD inline Sequence sequence_of(const AttentionArgs& a, std::int64_t b) {
  Sequence s{0, a.queries, 0, a.keys};
  const auto between = [b](const Places& places, std::int64_t tokens, std::int64_t& first,
                           std::int64_t& count) {
    first = std::clamp<std::int64_t>(places[b], 0, tokens);
    count = std::clamp<std::int64_t>(places[b + 1], first, tokens) - first;
  };
  if (a.q_offsets) between(a.q_offsets, a.queries, s.q_first, s.queries);
  if (a.kv_offsets) between(a.kv_offsets, a.keys, s.k_first, s.keys);
  if (a.lengths) s.keys = std::clamp<std::int64_t>(a.lengths[b], 0, s.keys);
  return s;
}

// The offset of key t of a sequence in k or v, in elements. Its page must exist.
ONEPASS_HD inline std::int64_t key_offset(const AttentionArgs& a, const Sequence& s,
                                          const Heads& operand, std::int64_t b,
                                          std::int64_t kv_head, std::int64_t t) {
  if (!a.pages) return operand.offset(b, kv_head, s.k_first + t);
  const std::int64_t page = a.pages.table[b * a.pages.stride + t / a.pages.size];
  return operand.offset(page, kv_head, t % a.pages.size);
}

// The key that a query stands at: the last query stands at the last key.
ONEPASS_HD inline std::int64_t own_key(const Sequence& s, std::int64_t q) {
  return q + s.keys - s.queries;
}

struct Keys {
  std::int64_t begin, end;
};

// The keys that no causal or window mask hides from query q of a sequence.
ONEPASS_HD inline Keys live_keys(const AttentionArgs& a, const Sequence& s, std::int64_t q) {
  constexpr std::int64_t far = std::numeric_limits<std::int64_t>::max() / 4;
  const std::int64_t own = own_key(s, q);
  Keys keys{0, s.keys};
  if (a.causal) keys.end = std::min(keys.end, own + 1);
  if (a.window_right >= 0) keys.end = std::min(keys.end, own + std::min(a.window_right, far) + 1);
  if (a.window_left >= 0) keys.begin = std::max(keys.begin, own - std::min(a.window_left, far));
  keys.end = std::max<std::int64_t>(keys.end, 0);
  keys.begin = std::min(keys.begin, keys.end);
  return keys;
}

// What the queries of a sequence see, in 32 bits for kernels.
ONEPASS_HD inline ops::attention::Sight sight_of(const AttentionArgs& a, const Sequence& s) {
  // A window as long as the sequence hides nothing.
  const auto at_most = [](std::int64_t window, std::int64_t all) {
    return static_cast<int>(window < all ? window : all);
  };
  return {static_cast<int>(s.queries), static_cast<int>(s.keys), at_most(a.window_left, s.keys),
          a.causal ? 0 : at_most(a.window_right, s.queries)};
}

}  // namespace onepass

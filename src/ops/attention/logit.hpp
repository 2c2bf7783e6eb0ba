// z of one query and one key: the formula of onepass/attention.hpp, an element at a time.
#pragma once

#include <cmath>

#include "core/state.hpp"
#include "ops/attention/args.hpp"

namespace onepass {

// softcap(score) · cap where there is one.
template <class T>
ONEPASS_HD inline T capped(T score, T cap) {
  return cap > 0 ? cap * std::tanh(score / cap) : score;
}

// What a head adds for distance: its slope, 0 without alibi.
template <class T = float>
ONEPASS_HD inline T slope_of(const AttentionArgs& a, std::int64_t b, std::int64_t head) {
  return a.alibi ? read_one<T>(a.alibi.data, a.alibi.dtype, a.alibi.offset(b, head, 0)) : T(0);
}

// The state that a query's begins with: its sink, which has no value.
template <class T = float>
ONEPASS_HD inline State<T> first_state(const AttentionArgs& a, std::int64_t head) {
  if (!a.sinks) return identity<T>();
  return leaf(read_one<T>(a.sinks.data, a.sinks.dtype, a.sinks.offset(0, head, 0)));
}

// The tensor masks of one query; `key` is one of the sequence's.
struct QueryMasks {
  Heads additive, boolean;  // `data` is the query's row, key 0 of the sequence

  ONEPASS_HD QueryMasks(const AttentionArgs& a, const Sequence& s, std::int64_t b,
                        std::int64_t head, std::int64_t q)
      : additive(a.additive), boolean(a.boolean) {
    const auto move = [&](Heads& mask) {
      if (!mask) return;
      const std::int64_t offset = mask.offset(b, head, s.q_first + q) + s.k_first * mask.key;
      mask.data = static_cast<std::byte*>(mask.data) +
                  offset * static_cast<std::int64_t>(size_of(mask.dtype));
    };
    move(additive);
    move(boolean);
  }

  ONEPASS_HD bool hides(std::int64_t key) const {
    return boolean && static_cast<const std::uint8_t*>(boolean.data)[key * boolean.key] == 0;
  }
  template <class T = float>
  ONEPASS_HD T added(std::int64_t key) const {
    return additive ? read_like<T>(additive.data, additive.dtype, key * additive.key) : T(0);
  }
};

}  // namespace onepass

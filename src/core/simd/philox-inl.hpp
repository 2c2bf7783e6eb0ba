// Philox4x32-10, as many counters at once as a vector has lanes. Per-target.

#if defined(ONEPASS_CORE_SIMD_PHILOX_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEPASS_CORE_SIMD_PHILOX_INL
#undef ONEPASS_CORE_SIMD_PHILOX_INL
#else
#define ONEPASS_CORE_SIMD_PHILOX_INL
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "core/philox.hpp"

HWY_BEFORE_NAMESPACE();
namespace onepass::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The two halves of the products of 32-bit lanes.
template <class V>
HWY_INLINE void MulHighLow(V a, V b, V& high, V& low) {
  const hn::DFromV<V> d;
  const hn::RepartitionToWide<hn::DFromV<V>> d64;
  const auto even = hn::MulEven(a, b);
  const auto up = [=](V v)
                      HWY_ATTR { return hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, v))); };
  const auto odd = hn::MulEven(up(a), up(b));
  const auto low_half = hn::Set(d64, 0xFFFFFFFFU);
  high = hn::BitCast(d, hn::Or(hn::ShiftRight<32>(even), hn::AndNot(low_half, odd)));
  low = hn::BitCast(d, hn::Or(hn::And(low_half, even), hn::ShiftLeft<32>(odd)));
}

// The words of `count` tokens from `first` on, a multiple of 4. `out` needs room for 4 vectors more.
inline void WordsOfTokens(uint64_t seed, uint64_t offset, int64_t first, size_t count,
                          uint32_t* out) {
  const hn::ScalableTag<uint32_t> d;
  using V = hn::Vec<decltype(d)>;
  const size_t lanes = hn::Lanes(d);
  if (lanes <= 4) {  // a scalar multiplier has both halves at once: 3 ns a word against 5 on a Neoverse-V1
    for (size_t i = 0; i < count; i += 4) {
      const Words4 words = words_of_tokens(seed, offset, first + static_cast<int64_t>(i));
      std::copy(words.begin(), words.end(), out + i);
    }
    return;
  }
  for (size_t i = 0; i < count; i += 4 * lanes) {
    const auto group = static_cast<uint64_t>(first) / 4 + i / 4;
    V c0 = hn::Add(hn::Iota(d, 0), hn::Set(d, static_cast<uint32_t>(group)));
    // The counter's upper half, one more in the lanes in which the lower has come round.
    const auto wrapped = hn::Lt(c0, hn::Set(d, static_cast<uint32_t>(group)));
    V c1 = hn::Add(hn::Set(d, static_cast<uint32_t>(group >> 32)),
                   hn::IfThenElseZero(wrapped, hn::Set(d, 1U)));
    V c2 = hn::Set(d, static_cast<uint32_t>(offset));
    V c3 = hn::Set(d, static_cast<uint32_t>(offset >> 32));
    auto k0 = static_cast<uint32_t>(seed);
    auto k1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      V high_a, low_a, high_b, low_b;
      MulHighLow(c0, hn::Set(d, 0xD2511F53U), high_a, low_a);
      MulHighLow(c2, hn::Set(d, 0xCD9E8D57U), high_b, low_b);
      c0 = hn::Xor(hn::Xor(high_b, c1), hn::Set(d, k0));
      c1 = low_b;
      c2 = hn::Xor(hn::Xor(high_a, c3), hn::Set(d, k1));
      c3 = low_a;
      k0 += 0x9E3779B9;
      k1 += 0xBB67AE85;
    }
    hn::StoreInterleaved4(c0, c1, c2, c3, d, out + i);
  }
}

}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

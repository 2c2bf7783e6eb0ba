// Who is left by top_p of so many tokens that no list of candidates has them. Per-target.

#if defined(ONEPASS_OPS_TOPK_NUCLEUS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEPASS_OPS_TOPK_NUCLEUS_INL
#undef ONEPASS_OPS_TOPK_NUCLEUS_INL
#else
#define ONEPASS_OPS_TOPK_NUCLEUS_INL
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "core/simd/inline-inl.hpp"
#include "merge/lane-inl.hpp"
#include "ops/select/cpu/best.hpp"
#include "ops/select/cpu/offer-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace onepass::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// body(z, n, c) for every tile of a row.
template <class T, class Body>
void EachTile(const LogitsReader<T>& z, Buffers<T>& buffers, Body body) {
  const Columns live = z.live();
  for (int64_t c = live.begin; c < live.end; c += kTile) {
    const auto n = static_cast<size_t>(std::min(kTile, live.end - c));
    body(TileOf(z, c, n, buffers), n, c);
  }
}

// The token with which those before it come to a weight. A histogram of z, the weights below the
// maximum, has it in one of its bins; of these tokens it is found by order.
template <class T>
Candidate<T> LastWith(const LogitsReader<T>& z_of_row, Buffers<T>& buffers, double wanted, T m) {
  constexpr size_t kBins = 1024;
  const hn::ScalableTag<T> d;
  const hn::RebindToSigned<decltype(d)> di;
  const auto top = hn::Set(d, m);
  const auto of_unit = hn::Set(d, T(32));
  const auto last = hn::Set(d, T(kBins - 1));
  hn::TFromD<decltype(di)> bin_of[kTile];
  const auto find_bins = [&](const T* z, size_t n) ONEPASS_INLINE {
    ForEachPack(d, z, n, minus_infinity<T>(), [&](auto& v, size_t i) ONEPASS_INLINE {
      for (size_t k = 0; k < std::size(v); ++k) {
        const auto bin = hn::Min(hn::Mul(hn::Sub(top, v[k]), of_unit), last);
        hn::StoreU(hn::ConvertTo(di, bin), di, bin_of + i + k * hn::Lanes(d));
      }
    });
  };
  std::array<double, kBins> bins{};
  EachTile(z_of_row, buffers, [&](const T* z, size_t n, int64_t) ONEPASS_INLINE {
    ExpTile(d, z, n, top, buffers.other);
    find_bins(z, n);
    for (size_t i = 0; i < n; ++i) {
      bins[static_cast<size_t>(bin_of[i])] += static_cast<double>(buffers.other[i]);
    }
  });
  size_t bin = 0;
  double sum = 0;
  while (bin < kBins - 1 && sum + bins[bin] < wanted) sum += bins[bin++];
  std::vector<Candidate<T>> in_bin;
  EachTile(z_of_row, buffers, [&](const T* z, size_t n, int64_t c) ONEPASS_INLINE {
    find_bins(z, n);
    for (size_t i = 0; i < n; ++i) {
      if (static_cast<size_t>(bin_of[i]) != bin || z[i] == minus_infinity<T>()) continue;
      in_bin.push_back({z[i], c + static_cast<int64_t>(i)});
    }
  });
  std::sort(in_bin.begin(), in_bin.end());
  for (const Candidate<T>& c : in_bin) {
    sum += std::exp(static_cast<double>(c.z) - static_cast<double>(m));
    if (sum >= wanted) return c;
  }
  return {minus_infinity<T>(), std::numeric_limits<int64_t>::max()};  // all, by rounding
}

}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

// The lse output of a row. Per-target.

#if defined(ONEPASS_OPS_ROW_LSE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEPASS_OPS_ROW_LSE_INL
#undef ONEPASS_OPS_ROW_LSE_INL
#else
#define ONEPASS_OPS_ROW_LSE_INL
#endif

#include <hwy/highway.h>

#include <cmath>

#include "core/long_state.hpp"
#include "rows/cpu/tile-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace onepass::HWY_NAMESPACE {

// The lse of a row. A maximum of +inf makes d NaN even if the row has no NaN, and its lse +inf:
// only then this reads the row again, to look for a NaN.
template <class T>
HWY_NOINLINE T RowLse(const LogitsReader<T>& z, const LongState& total, Buffers<T>& buffers) {
  if (total.m != -minus_infinity<double>()) return static_cast<T>(logsumexp(total));
  for (int64_t c = z.live().begin; c < z.live().end; ++c) {
    if (std::isnan(z.at(c, buffers))) return std::numeric_limits<T>::quiet_NaN();
  }
  return static_cast<T>(total.m);
}

}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

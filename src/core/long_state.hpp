// The state of a row too long for a float's sum: the same merge, with compensated additions.
#pragma once

#include "core/state.hpp"

namespace onepass {

// The state of a long row, merged from many. A sum of equal terms rounds the same way at every
// step, and a sum of 1 absorbs any number of terms below half its ulp without a trace. So the sum
// is a double, and `lost` holds what its additions round off. m may stay up to kSlack below the
// maximum: otherwise a slowly rising maximum would rescale, and round, the sum at every step.
struct LongState {
  static constexpr double kSlack = 1;

  double m = minus_infinity<double>();
  double d = 0;
  double lost = 0;

  LongState() = default;
  LongState(double maximum, double sum, double rounded_off = 0)
      : m(maximum), d(sum), lost(rounded_off) {}
  template <class T>
  LongState(State<T> s) : m(s.m), d(s.d) {}
};

template <class T>
inline State<T> narrow(const LongState& row) {
  return {static_cast<T>(row.m), static_cast<T>(row.d + row.lost)};
}

inline LongState merge(const LongState& a, const LongState& b) {
  const bool ordered = a.m + LongState::kSlack >= b.m || a.m != a.m;
  const LongState& high = ordered ? a : b;
  const LongState& low = ordered ? b : a;
  const double by = high.m == low.m ? 1 : rescale(high.m, low.m);
  const double term = low.d * by;
  const double sum = high.d + term;
  const double kept = sum - term;  // the part of high.d; Knuth's two-sum, exact in either order
  return {high.m, sum, high.lost + low.lost * by + ((high.d - kept) + (term - (sum - kept)))};
}

inline double logsumexp(const LongState& row) { return logsumexp(narrow<double>(row)); }

}  // namespace onepass

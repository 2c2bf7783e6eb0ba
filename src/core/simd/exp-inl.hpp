// exp for arguments from which a maximum was subtracted: x ≤ 0, or NaN. Per-target. (Arguments up
// to 88 also work.)
//
// exp(x) = 2^n · exp(r), n = round(x / ln 2), |r| ≤ ln 2 / 2. Adding `shifter` rounds to an integer
// and leaves n + bias in the low mantissa bits, so that one shift makes the float 2^n. The
// polynomial is 1 + r + r²·q(r), q fitted by Chebyshev interpolation: relative error 1.0e-8 (f32)
// and 1.7e-17 (f64) before rounding. Arguments are cut off where n + bias is 0, which as the bits
// of a float is 0 too: from there on, −inf included, the result is 0.

#if defined(ONEPASS_CORE_SIMD_EXP_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEPASS_CORE_SIMD_EXP_INL
#undef ONEPASS_CORE_SIMD_EXP_INL
#else
#define ONEPASS_CORE_SIMD_EXP_INL
#endif

#include <hwy/highway.h>

#include "core/simd/inline-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace onepass::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
struct ExpConstants;

template <>
struct ExpConstants<float> {
  static constexpr float log2e = 1.44269504088896341F;
  static constexpr float shifter = 0x1.8p23F + 127;  // 1.5·2^23: the ulp is 1; 127: the bias
#if HWY_NATIVE_FMA
  // The float next to ln 2 is off by 1.9e-9 only: an ulp after 60 of the 127 steps of n.
  static constexpr float ln2_high = 0.693147180559945309F;
  static constexpr float ln2_low = 0;
#else
  static constexpr float ln2_high = 0.693359375F;  // 9 bits, so that n·ln2_high is exact
  static constexpr float ln2_low = -2.12194440054690583e-4F;
#endif
  static constexpr float lowest = -88.0296919311130543F;  // −127·ln 2
  static constexpr int mantissa_bits = 23;
  static constexpr float q[] = {1.3926183587713494542e-3F, 8.3631790527225773704e-3F,
                                4.1666554617204574203e-2F, 1.6666576989698775683e-1F, 0.5F};
};

template <>
struct ExpConstants<double> {
  static constexpr double log2e = 1.44269504088896341;
  static constexpr double shifter = 0x1.8p52 + 1023;
  static constexpr double ln2_high = 0.693145751953125;
  static constexpr double ln2_low = 1.42860682030941723212e-6;
  static constexpr double lowest = -709.089565712824051;  // −1023·ln 2
  static constexpr int mantissa_bits = 52;
  static constexpr double q[] = {2.5100385495510319078e-8, 2.7620088445409748161e-7,
                                 2.7557268459997064772e-6, 2.4801521295954375131e-5,
                                 1.9841269863053616878e-4, 1.3888888917213716901e-3,
                                 8.3333333333300618325e-3, 4.1666666666624127873e-2,
                                 1.6666666666666667453e-1, 5.0000000000000010221e-1};
};

// max(least, x) and min(most, x) that keep a NaN. x86's instructions do, in this order of operands;
// others drop it.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
inline constexpr bool kBoundsKeepNan = true;
#else
inline constexpr bool kBoundsKeepNan = false;
#endif

template <class D, class V = hn::Vec<D>>
ONEPASS_FORCED V NoLess(D d, V x, hn::TFromD<D> least) {
  const V bound = hn::Set(d, least);
  return kBoundsKeepNan ? hn::Max(bound, x) : hn::IfThenElse(hn::Lt(x, bound), bound, x);
}

template <class D, class V = hn::Vec<D>>
ONEPASS_FORCED V NoMore(D d, V x, hn::TFromD<D> most) {
  const V bound = hn::Set(d, most);
  return kBoundsKeepNan ? hn::Min(bound, x) : hn::IfThenElse(hn::Gt(x, bound), bound, x);
}

// Computes a few vectors at once, step by step: the instructions of a step are independent and
// close enough together for the CPU's out-of-order window.
template <class D, class V, size_t K>
ONEPASS_FORCED void ExpOfNonPositive(D d, V (&x)[K]) {
  using C = ExpConstants<hn::TFromD<D>>;
  const hn::RebindToUnsigned<D> bits;
  const V shifter = hn::Set(d, C::shifter);
  V r[K], power[K], q[K];
  for (size_t k = 0; k < K; ++k) {
    x[k] = NoLess(d, x[k], C::lowest);
    power[k] = hn::MulAdd(x[k], hn::Set(d, C::log2e), shifter);
  }
  for (size_t k = 0; k < K; ++k) {
    const V n = hn::Sub(power[k], shifter);
    r[k] = hn::NegMulAdd(n, hn::Set(d, C::ln2_high), x[k]);
    if constexpr (C::ln2_low != 0) r[k] = hn::NegMulAdd(n, hn::Set(d, C::ln2_low), r[k]);
    power[k] = hn::BitCast(d, hn::ShiftLeft<C::mantissa_bits>(hn::BitCast(bits, power[k])));  // 2^n
    q[k] = hn::Set(d, C::q[0]);
  }
  for (size_t i = 1; i < sizeof(C::q) / sizeof(C::q[0]); ++i) {
    for (size_t k = 0; k < K; ++k) q[k] = hn::MulAdd(q[k], r[k], hn::Set(d, C::q[i]));
  }
  // power·(1 + r + r²·q) as power + power·(r + r²·q): a product with power keeps a NaN in r a NaN.
  for (size_t k = 0; k < K; ++k) q[k] = hn::MulAdd(hn::Mul(r[k], r[k]), q[k], r[k]);
  for (size_t k = 0; k < K; ++k) x[k] = hn::MulAdd(power[k], q[k], power[k]);
}

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
// 2^x. AVX-512 splits a number into its integer and the rest, and scales by a power of two, in one
// instruction each, inf and NaN included. The polynomial's relative error is 1.5e-7, and none at 0.
template <class D, class V, size_t K>
ONEPASS_FORCED void Exp2(D d, V (&x)[K]) {
  constexpr float q[] = {9.0170300e-3F, 5.5799913e-2F, 2.4016445e-1F, 6.9315131e-1F, 1.0F};
  V r[K], power[K];
  for (size_t k = 0; k < K; ++k) {
    r[k] = V{_mm512_reduce_ps(x[k].raw, _MM_FROUND_FLOOR)};  // x − floor(x)
    power[k] = hn::Set(d, 1.8671300e-3F);
  }
  for (const float each : q) {
    for (size_t k = 0; k < K; ++k) power[k] = hn::MulAdd(power[k], r[k], hn::Set(d, each));
  }
  for (size_t k = 0; k < K; ++k) x[k] = V{_mm512_scalef_ps(power[k].raw, x[k].raw)};
}
#endif

// ExpOfNonPositive for 16-bit logits, with 8 instructions instead of 12 on AVX-512. Rounding x·log2
// e leaves a relative error of |x|·1e-7, far below the precision of such logits.
template <class D, class V, size_t K>
ONEPASS_FORCED void ExpOfShort(D d, V (&x)[K]) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  for (V& each : x) each = hn::Mul(each, hn::Set(d, ExpConstants<float>::log2e));
  Exp2(d, x);
#else
  ExpOfNonPositive(d, x);
#endif
}

template <class D, class V = hn::Vec<D>>
ONEPASS_FORCED V ExpOfNonPositive(D d, V x) {
  V one[1] = {x};
  ExpOfNonPositive(d, one);
  return one[0];
}

}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

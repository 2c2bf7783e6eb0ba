// The per-target code of core/simd, once for every instruction set that this machine can run: exp,
// and the loads and stores that convert.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/core/simd_exp_test.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "core/simd/exp-inl.hpp"
#include "core/simd/inline-inl.hpp"
#include "core/simd/memory-inl.hpp"

// What is compiled per target only moves data; everything is judged below, once.
HWY_BEFORE_NAMESPACE();
namespace onepass::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

const char* Target() { return hwy::TargetName(HWY_TARGET); }

size_t LanesOf(DType compute) {
  return compute == DType::f64 ? hn::Lanes(hn::ScalableTag<double>())
                               : hn::Lanes(hn::ScalableTag<float>());
}

// Whole vectors only: n is a multiple of the lanes.
template <class T>
void Exp(const T* x, T* y, size_t n) {
  const hn::ScalableTag<T> d;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    hn::StoreU(ExpOfNonPositive(d, hn::LoadU(d, x + i)), d, y + i);
  }
}

// The same three vectors at a time.
template <class T>
void ExpPacks(const T* x, T* y, size_t n) {
  const hn::ScalableTag<T> d;
  const size_t lanes = hn::Lanes(d);
  for (size_t i = 0; i < n; i += 3 * lanes) {
    hn::Vec<decltype(d)> pack[3];
    for (size_t k = 0; k < 3; ++k) pack[k] = hn::LoadU(d, x + i + k * lanes);
    ExpOfNonPositive(d, pack);
    for (size_t k = 0; k < 3; ++k) hn::StoreU(pack[k], d, y + i + k * lanes);
  }
}

void ExpF32(const float* x, float* y, size_t n) { Exp(x, y, n); }
void ExpF64(const double* x, double* y, size_t n) { Exp(x, y, n); }
void ExpPacksF32(const float* x, float* y, size_t n) { ExpPacks(x, y, n); }
void ExpPacksF64(const double* x, double* y, size_t n) { ExpPacks(x, y, n); }

// All lanes of a tail as doubles.
template <class T>
void LoadTailAs(DType stored, const void* p, size_t count, double fill, double* lanes) {
  const hn::ScalableTag<T> d;
  HWY_ALIGN T out[hn::MaxLanes(d)];
  with_type(stored, [&]<class Stored>(Type<Stored>) HWY_ATTR {
    hn::Store(LoadTail(d, static_cast<const Stored*>(p), count, static_cast<T>(fill)), d, out);
  });
  for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = static_cast<double>(out[i]);
}

void LoadTails(DType compute, DType stored, const void* p, size_t count, double fill,
               double* lanes) {
  compute == DType::f64 ? LoadTailAs<double>(stored, p, count, fill, lanes)
                        : LoadTailAs<float>(stored, p, count, fill, lanes);
}

template <class T>
void StoreTailAs(DType stored, const double* lanes, void* p, size_t count) {
  const hn::ScalableTag<T> d;
  HWY_ALIGN T in[hn::MaxLanes(d)];
  for (size_t i = 0; i < hn::Lanes(d); ++i) in[i] = static_cast<T>(lanes[i]);
  with_type(stored, [&]<class Stored>(Type<Stored>) HWY_ATTR {
    StoreTail(d, hn::Load(d, in), static_cast<Stored*>(p), count);
  });
}

void StoreTails(DType compute, DType stored, const double* lanes, void* p, size_t count) {
  compute == DType::f64 ? StoreTailAs<double>(stored, lanes, p, count)
                        : StoreTailAs<float>(stored, lanes, p, count);
}

// Everything ForEachPack hands out of n elements, in order; returns how much that is.
template <class T, class Stored>
size_t PacksAs(const Stored* p, size_t n, T fill, double* out) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const size_t lanes = hn::Lanes(d);
  size_t end = 0;
  ForEachPack(d, p, n, fill, [&](auto& pack, size_t i) ONEPASS_INLINE {
    for (const V& v : pack) {
      HWY_ALIGN T values[hn::MaxLanes(d)];
      hn::Store(v, d, values);
      for (size_t k = 0; k < lanes; ++k) out[i++] = static_cast<double>(values[k]);
    }
    end = i;
  });
  return end;
}

size_t Packs(DType compute, DType stored, const void* p, size_t n, double fill, double* out) {
  const auto run = [=]<class T, class Stored>(Type<T>, Type<Stored>) -> size_t {
    if constexpr (kVectorConvert<T, Stored>) {
      return PacksAs(static_cast<const Stored*>(p), n, static_cast<T>(fill), out);
    } else {
      return 0;
    }
  };
  return with_type(stored, [&]<class Stored>(Type<Stored> type) {
    return compute == DType::f64 ? run(Type<double>{}, type) : run(Type<float>{}, type);
  });
}

// Whole vectors to and from a 16-bit type; element by element where this target knows no better.
template <class Stored>
void NarrowAs(const float* x, Stored* y, size_t n) {
  const hn::ScalableTag<float> d;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    const auto v = hn::LoadU(d, x + i);
    if constexpr (kVectorConvert<float, Stored>) {
      StoreAs(d, v, y + i);
    } else {
      StoreTail(d, v, y + i, hn::Lanes(d));
    }
  }
}

template <class Stored>
void WidenAs(const Stored* x, float* y, size_t n) {
  const hn::ScalableTag<float> d;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    if constexpr (kVectorConvert<float, Stored>) {
      hn::StoreU(LoadAs(d, x + i), d, y + i);
    } else {
      hn::StoreU(LoadTail(d, x + i, hn::Lanes(d), 0.0F), d, y + i);
    }
  }
}

void ExpShort(const float* x, float* y, size_t n) {
  const hn::ScalableTag<float> d;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    hn::Vec<decltype(d)> pack[1] = {hn::LoadU(d, x + i)};
    ExpOfShort(d, pack);
    hn::StoreU(pack[0], d, y + i);
  }
}

// As kernels do it with bf16: a tile in pairs to `kept`, and from there, multiplied, to y. n is a
// multiple of two vectors.
void ScalePairs(const BF16* x, float factor, float* kept, BF16* y, size_t n) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  const auto* from = AnyOrder(x);
  using Stored = std::remove_const_t<std::remove_pointer_t<decltype(from)>>;
  ForEachPack(d, from, n, 0.0F, [=](auto& pack, size_t i) ONEPASS_INLINE {
    for (const auto& v : pack) {
      hn::StoreU(v, d, kept + i);
      i += lanes;
    }
  });
  const auto scaled = hn::Set(d, factor);
  constexpr size_t kVectors = kGroup<float, Stored>;
  for (size_t i = 0; i < n; i += kVectors * lanes) {
    StoreScaled<false, kVectors>(d, kept + i, scaled, static_cast<Stored*>(y + i));
  }
}

void NarrowF16(const float* x, F16* y, size_t n) { NarrowAs(x, y, n); }
void NarrowBF16(const float* x, BF16* y, size_t n) { NarrowAs(x, y, n); }
void WidenF16(const F16* x, float* y, size_t n) { WidenAs(x, y, n); }
void WidenBF16(const BF16* x, float* y, size_t n) { WidenAs(x, y, n); }

}  // namespace
}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "runtime/host.hpp"

namespace onepass {

HWY_EXPORT(Target);
HWY_EXPORT(LanesOf);
HWY_EXPORT(ExpF32);
HWY_EXPORT(ExpF64);
HWY_EXPORT(ExpPacksF32);
HWY_EXPORT(ExpPacksF64);
HWY_EXPORT(LoadTails);
HWY_EXPORT(StoreTails);
HWY_EXPORT(Packs);
HWY_EXPORT(ExpShort);
HWY_EXPORT(ScalePairs);
HWY_EXPORT(NarrowF16);
HWY_EXPORT(NarrowBF16);
HWY_EXPORT(WidenF16);
HWY_EXPORT(WidenBF16);

namespace {

constexpr std::size_t kMostLanes = 64;

class SimdTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(force_isa(GetParam()));
    ASSERT_EQ(HWY_DYNAMIC_DISPATCH(Target)(), GetParam());  // the forced one is the one that runs
  }
  void TearDown() override { force_isa(""); }
};

INSTANTIATE_TEST_SUITE_P(EveryIsa, SimdTest, testing::ValuesIn(runnable_isas()),
                         [](const auto& isa) { return isa.param; });

// Padded with zeros to a multiple of three vectors of any width.
template <class T>
std::vector<T> padded(std::vector<T> x) {
  x.resize((x.size() / (3 * kMostLanes) + 1) * 3 * kMostLanes, T(0));
  return x;
}

std::vector<float> exp_of(std::vector<float> x) {
  const std::size_t n = x.size();
  x = padded(std::move(x));
  HWY_DYNAMIC_DISPATCH(ExpF32)(x.data(), x.data(), x.size());
  x.resize(n);
  return x;
}

std::vector<double> exp_of(std::vector<double> x) {
  const std::size_t n = x.size();
  x = padded(std::move(x));
  HWY_DYNAMIC_DISPATCH(ExpF64)(x.data(), x.data(), x.size());
  x.resize(n);
  return x;
}

// Evenly over [lowest, 0], and ever closer to 0.
template <class T>
std::vector<T> grid(T lowest, int points) {
  std::vector<T> x;
  for (int i = 0; i <= points; ++i) x.push_back(lowest * T(i) / T(points));
  for (T v = lowest; v < -std::numeric_limits<T>::min(); v *= T(0.97)) x.push_back(v);
  return x;
}

template <class T>
double ulp(T exact) {
  const int exponent = std::ilogb(exact) + 1 - std::numeric_limits<T>::digits;
  return std::ldexp(1.0, exponent);
}

// The accuracy of exp, in ulps of its result, over the arguments whose exp is a normal number. In
// f32 ln 2 is one float, whose error counts once for every halving: small weights are less
// accurate, and still better than a rounding of their argument allows.
struct Accuracy {
  double lowest;  // arguments from here to 0
  double most_ulps;
};
constexpr Accuracy kAccuracyF32[] = {{-1, 1.0}, {-10, 1.5}, {-87, 5.0}};
constexpr Accuracy kAccuracyF64[] = {{-1, 1.0}, {-10, 1.0}, {-708, 1.0}};

// Wide: a type with enough digits to be exact beside T.
template <class Wide, class T>
double most_ulps(const std::vector<T>& x, const std::vector<T>& y) {
  double most = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Wide exact = std::exp(static_cast<Wide>(x[i]));
    const double error = static_cast<double>(std::abs(static_cast<Wide>(y[i]) - exact));
    most = std::max(most, std::isnan(y[i]) ? HUGE_VAL : error / ulp(static_cast<T>(exact)));
  }
  return most;
}

TEST_P(SimdTest, ExpIsAccurateInF32) {
  for (const Accuracy& row : kAccuracyF32) {
    const std::vector<float> x = grid(static_cast<float>(row.lowest), 100000);
    EXPECT_LE(most_ulps<double>(x, exp_of(x)), row.most_ulps) << "over [" << row.lowest << ", 0]";
  }
}

TEST_P(SimdTest, ExpIsAccurateInF64) {
  for (const Accuracy& row : kAccuracyF64) {
    const std::vector<double> x = grid(row.lowest, 5000);
    EXPECT_LE(most_ulps<long double>(x, exp_of(x)), row.most_ulps)
        << "over [" << row.lowest << ", 0]";
  }
}

TEST_P(SimdTest, ExpNeverExceedsOne) {
  for (const float y : exp_of(grid(-87.0F, 20000))) ASSERT_LE(y, 1.0F);
  for (const double y : exp_of(grid(-708.0, 20000))) ASSERT_LE(y, 1.0);
}

template <class T>
void check_ends(T first_subnormal) {
  const T inf = std::numeric_limits<T>::infinity();
  const T tiny = std::numeric_limits<T>::denorm_min();
  EXPECT_EQ(exp_of(std::vector<T>{0, T(-0.0), -tiny, -std::numeric_limits<T>::min()}),
            (std::vector<T>{1, 1, 1, 1}));
  EXPECT_EQ(exp_of(std::vector<T>{-inf, std::numeric_limits<T>::lowest(), T(-1e30), T(-1e5)}),
            (std::vector<T>{0, 0, 0, 0}));
  std::vector<T> x;
  for (T v = first_subnormal; v > 2 * first_subnormal; v *= T(1.0001)) x.push_back(v);
  for (const T y : exp_of(x)) {
    ASSERT_GE(y, T(0));
    ASSERT_LE(y, std::numeric_limits<T>::min());
  }
}

TEST_P(SimdTest, ExpAtZeroAndBelowTheSmallestNormalF32) { check_ends<float>(-87.3366F); }
TEST_P(SimdTest, ExpAtZeroAndBelowTheSmallestNormalF64) { check_ends<double>(-708.3965); }

template <class T, class Bits>
std::vector<T> nans() {
  constexpr int mantissa = std::numeric_limits<T>::digits - 1;
  constexpr Bits inf = std::bit_cast<Bits>(std::numeric_limits<T>::infinity());
  constexpr Bits full = (Bits(1) << mantissa) - 1;
  constexpr Bits sign = Bits(1) << (8 * sizeof(T) - 1);
  std::vector<T> x = {std::bit_cast<T>(inf | full), std::bit_cast<T>(sign | inf | full)};
  for (int bit = 0; bit < mantissa; ++bit) {
    for (const Bits payload : {Bits(1) << bit, full ^ (Bits(1) << bit)}) {
      x.push_back(std::bit_cast<T>(inf | payload));
      x.push_back(std::bit_cast<T>(sign | inf | payload));
    }
  }
  return x;
}

TEST_P(SimdTest, ExpOfNanIsNanWithEveryPayload) {
  const std::vector<float> single = nans<float, std::uint32_t>();
  ASSERT_EQ(std::bit_cast<std::uint32_t>(single[0]), 0x7FFFFFFFU);
  ASSERT_EQ(std::bit_cast<std::uint32_t>(single[2]), 0x7F800001U);
  for (const float y : exp_of(single)) EXPECT_TRUE(std::isnan(y));
  for (const double y : exp_of(nans<double, std::uint64_t>())) EXPECT_TRUE(std::isnan(y));
}

std::vector<float> short_exp_of(std::vector<float> x) {
  const std::size_t n = x.size();
  x = padded(std::move(x));
  HWY_DYNAMIC_DISPATCH(ExpShort)(x.data(), x.data(), x.size());
  x.resize(n);
  return x;
}

TEST_P(SimdTest, ShortExpIsAccurateBeyondTheDigitsOfItsLogits) {
  const std::vector<float> x = grid(-87.0F, 100000);
  const std::vector<float> y = short_exp_of(x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(static_cast<double>(x[i]));
    ASSERT_NEAR(y[i], exact, exact * (2e-7 + 1.2e-7 * std::abs(x[i]))) << x[i];
  }
}

TEST_P(SimdTest, ShortExpOfWhatIsNoNumberOrTooSmall) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(short_exp_of({-inf, std::numeric_limits<float>::lowest(), -1e30F, -1e5F}),
            (std::vector<float>{0, 0, 0, 0}));
  for (const float y : short_exp_of({0.0F, -0.0F, -1e-30F})) EXPECT_NEAR(y, 1, 1.2e-7);
  for (const float y : short_exp_of(nans<float, std::uint32_t>())) EXPECT_TRUE(std::isnan(y));
}

std::vector<BF16> scale_pairs(const std::vector<BF16>& x, float factor) {
  std::vector<float> kept(x.size());
  std::vector<BF16> y(x.size());
  HWY_DYNAMIC_DISPATCH(ScalePairs)(x.data(), factor, kept.data(), y.data(), x.size());
  return y;
}

// Every bf16 from 0 to 1, in pairs with the ones from 1 to 0.
std::vector<BF16> weights_in_bf16() {
  std::vector<BF16> x;
  for (std::uint16_t bits = 0; bits <= 0x3F80; ++bits) {
    x.push_back({bits});
    x.push_back({static_cast<std::uint16_t>(0x3F80 - bits)});
  }
  x.resize((x.size() / (2 * kMostLanes) + 1) * 2 * kMostLanes, BF16{0});
  return x;
}

TEST_P(SimdTest, PairsComeBackInOrder) {
  const std::vector<BF16> x = weights_in_bf16();
  const std::vector<BF16> y = scale_pairs(x, 1);
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i].bits, x[i].bits) << i;
}

TEST_P(SimdTest, PairsAreScaledAndRoundedToNearest) {
  const std::vector<BF16> x = weights_in_bf16();
  for (const float factor : {0.999F, 0.7F, 1 / 3.0F, 1e-3F, 0x1p-20F, 1e-12F}) {
    const std::vector<BF16> y = scale_pairs(x, factor);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double exact = static_cast<double>(to_float(x[i])) * factor;
      const double step = std::max(exact * 0x1p-7, 0x1p-133);  // of bf16 at least, and its smallest
      ASSERT_NEAR(to_float(y[i]), exact, exact < 0x1p-126 ? step : step * 0.5001)
          << to_float(x[i]) << " * " << factor;
    }
  }
}

TEST_P(SimdTest, PairsKeepNan) {
  std::vector<BF16> x;
  for (std::uint32_t bits = 0x7F81; bits <= 0x7FFF; ++bits) {
    x.push_back({static_cast<std::uint16_t>(bits)});
    x.push_back({static_cast<std::uint16_t>(bits | 0x8000)});
  }
  x.resize((x.size() / (2 * kMostLanes) + 1) * 2 * kMostLanes, BF16{0x7FC0});
  for (const BF16 y : scale_pairs(x, 0.5F)) ASSERT_TRUE(std::isnan(to_float(y)));
  // A NaN that bf16 can hold, which is what comes of bf16.
  for (const std::uint32_t nan : {0x7FFF0000U, 0xFFFF0000U, 0x7FC00000U}) {
    for (const BF16 y : scale_pairs(weights_in_bf16(), std::bit_cast<float>(nan))) {
      ASSERT_TRUE(std::isnan(to_float(y)));
    }
  }
}

TEST_P(SimdTest, ExpOfAPackIsExpOfEachVector) {
  const std::vector<float> x = padded(grid(-90.0F, 1000));
  std::vector<float> one(x.size());
  std::vector<float> three(x.size());
  HWY_DYNAMIC_DISPATCH(ExpF32)(x.data(), one.data(), x.size());
  HWY_DYNAMIC_DISPATCH(ExpPacksF32)(x.data(), three.data(), x.size());
  EXPECT_EQ(one, three);
  const std::vector<double> wide_x = padded(grid(-720.0, 1000));
  std::vector<double> wide_one(wide_x.size());
  std::vector<double> wide_three(wide_x.size());
  HWY_DYNAMIC_DISPATCH(ExpF64)(wide_x.data(), wide_one.data(), wide_x.size());
  HWY_DYNAMIC_DISPATCH(ExpPacksF64)(wide_x.data(), wide_three.data(), wide_x.size());
  EXPECT_EQ(wide_one, wide_three);
}

// A page with nothing before and nothing behind it: one byte too far ends the process.
class LonelyPage {
 public:
  LonelyPage() : size_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {
    void* mapped = mmap(nullptr, 3 * size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return;
    memory_ = static_cast<std::byte*>(mapped);
    usable_ = mprotect(begin(), size_, PROT_READ | PROT_WRITE) == 0;
  }
  ~LonelyPage() {
    if (memory_ != nullptr) munmap(memory_, 3 * size_);
  }
  LonelyPage(const LonelyPage&) = delete;
  LonelyPage& operator=(const LonelyPage&) = delete;

  bool usable() const { return usable_; }
  std::byte* begin() const { return memory_ + size_; }
  std::byte* end() const { return memory_ + 2 * size_; }

 private:
  std::size_t size_;
  std::byte* memory_ = nullptr;
  bool usable_ = false;
};

constexpr DType kComputed[] = {DType::f32, DType::f64};
constexpr DType kStored[] = {DType::f32, DType::f16, DType::bf16, DType::f64};

double sample(std::size_t i) { return 1 + static_cast<double>(i) / 4; }  // exact in all of them

TEST_P(SimdTest, LoadTailReadsItsElementsAndNoFurther) {
  const LonelyPage page;
  ASSERT_TRUE(page.usable());
  const double fill = -std::numeric_limits<double>::infinity();
  for (const DType compute : kComputed) {
    const std::size_t lanes = HWY_DYNAMIC_DISPATCH(LanesOf)(compute);
    for (const DType stored : kStored) {
      for (std::size_t count = 0; count <= lanes; ++count) {
        for (std::byte* p : {page.begin(), page.end() - count * size_of(stored)}) {
          for (std::size_t i = 0; i < count; ++i) {
            write(p, stored, static_cast<std::int64_t>(i), sample(i));
          }
          double got[kMostLanes];
          HWY_DYNAMIC_DISPATCH(LoadTails)(compute, stored, p, count, fill, got);
          for (std::size_t i = 0; i < lanes; ++i) {
            ASSERT_EQ(got[i], i < count ? sample(i) : fill)
                << name(stored) << " to " << name(compute) << ", lane " << i << " of " << count;
          }
        }
      }
    }
  }
}

TEST_P(SimdTest, StoreTailWritesItsElementsAndNothingBeside) {
  const LonelyPage page;
  ASSERT_TRUE(page.usable());
  double values[kMostLanes];
  for (std::size_t i = 0; i < kMostLanes; ++i) values[i] = sample(i);
  for (const DType compute : kComputed) {
    const std::size_t lanes = HWY_DYNAMIC_DISPATCH(LanesOf)(compute);
    for (const DType stored : kStored) {
      for (std::size_t count = 0; count <= lanes; ++count) {
        std::fill(page.begin(), page.end(), std::byte{0xA5});
        std::byte* p = page.end() - count * size_of(stored);
        HWY_DYNAMIC_DISPATCH(StoreTails)(compute, stored, values, p, count);
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_EQ(read<double>(p, stored, static_cast<std::int64_t>(i)), sample(i))
              << name(compute) << " to " << name(stored) << ", " << i << " of " << count;
        }
        ASSERT_TRUE(std::all_of(page.begin(), p, [](std::byte b) { return b == std::byte{0xA5}; }));
        // And where there is room behind, it is left alone.
        std::fill(page.begin(), page.end(), std::byte{0xA5});
        HWY_DYNAMIC_DISPATCH(StoreTails)(compute, stored, values, page.begin(), count);
        ASSERT_TRUE(std::all_of(page.begin() + count * size_of(stored), page.end(),
                                [](std::byte b) { return b == std::byte{0xA5}; }))
            << name(compute) << " to " << name(stored) << ", " << count;
      }
    }
  }
}

TEST_P(SimdTest, PacksCoverEveryLengthOnceAndNoFurther) {
  const LonelyPage page;
  ASSERT_TRUE(page.usable());
  for (const DType compute : kComputed) {
    const std::size_t lanes = HWY_DYNAMIC_DISPATCH(LanesOf)(compute);
    for (const DType stored : kStored) {
      for (std::size_t n = 0; n <= 10 * lanes + 1; ++n) {
        std::byte* p = page.end() - n * size_of(stored);
        for (std::size_t i = 0; i < n; ++i) {
          write(p, stored, static_cast<std::int64_t>(i), sample(i % 16));
        }
        std::vector<double> got(n + kMostLanes, -1.0);
        const std::size_t end =
            HWY_DYNAMIC_DISPATCH(Packs)(compute, stored, p, n, -2.0, got.data());
        if (end == 0 && n > 0) continue;  // this target stages such data in another way
        ASSERT_EQ(end, (n + lanes - 1) / lanes * lanes);
        for (std::size_t i = 0; i < end; ++i) {
          ASSERT_EQ(got[i], i < n ? sample(i % 16) : -2.0)
              << name(stored) << " to " << name(compute) << ", element " << i << " of " << n;
        }
      }
    }
  }
}

// Every value of a 16-bit type, the middle to the next one, and the floats beside that: where
// rounding is decided, in both signs. And NaNs.
template <class Stored>
std::vector<float> rounding_cases() {
  std::vector<float> x = nans<float, std::uint32_t>();
  for (int bits = 0; bits < 0x10000; ++bits) {
    const float low = to_float(Stored{static_cast<std::uint16_t>(bits)});
    const float high = to_float(Stored{static_cast<std::uint16_t>(bits + 1)});
    // Between the largest and inf lies the middle that would be there with one more exponent.
    const float step = std::isinf(high)
                           ? low - to_float(Stored{static_cast<std::uint16_t>(bits - 1)})
                           : high - low;
    const float middle = low + step / 2;
    x.push_back(low);
    x.push_back(middle);
    x.push_back(std::nextafter(middle, HUGE_VALF));
    x.push_back(std::nextafter(middle, -HUGE_VALF));
  }
  for (const float extreme :
       {std::numeric_limits<float>::max(), HUGE_VALF, std::numeric_limits<float>::denorm_min()}) {
    x.push_back(extreme);
    x.push_back(-extreme);
  }
  return padded(x);
}

// A NaN stays one; which one is nobody's business.
bool same_number(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

template <class Stored>
void expect_same_rounding(const std::vector<float>& x, const std::vector<Stored>& y,
                          Stored (*scalar)(float)) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (same_number(to_float(y[i]), to_float(scalar(x[i])))) continue;
    FAIL() << std::hexfloat << x[i] << " became " << std::hex << y[i].bits << ", not "
           << scalar(x[i]).bits;
  }
}

TEST_P(SimdTest, NarrowsToBF16AsTheScalarCodeDoes) {
  const std::vector<float> x = rounding_cases<BF16>();
  std::vector<BF16> y(x.size());
  HWY_DYNAMIC_DISPATCH(NarrowBF16)(x.data(), y.data(), x.size());
  expect_same_rounding(x, y, to_bf16);
}

TEST_P(SimdTest, NarrowsToF16AsTheScalarCodeDoes) {
  const std::vector<float> x = rounding_cases<F16>();
  std::vector<F16> y(x.size());
  HWY_DYNAMIC_DISPATCH(NarrowF16)(x.data(), y.data(), x.size());
  expect_same_rounding(x, y, to_f16);
}

template <class Stored>
void expect_same_values(const std::vector<Stored>& x, const std::vector<float>& y) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (same_number(y[i], to_float(x[i]))) continue;
    FAIL() << std::hex << x[i].bits << " became " << std::hexfloat << y[i] << ", not "
           << to_float(x[i]);
  }
}

template <class Stored>
std::vector<Stored> every_pattern() {
  std::vector<Stored> x;
  for (int bits = 0; bits < 0x10000; ++bits) x.push_back({static_cast<std::uint16_t>(bits)});
  return x;
}

TEST_P(SimdTest, WidensEveryBF16) {
  const std::vector<BF16> x = every_pattern<BF16>();
  std::vector<float> y(x.size());
  HWY_DYNAMIC_DISPATCH(WidenBF16)(x.data(), y.data(), x.size());
  expect_same_values(x, y);
}

TEST_P(SimdTest, WidensEveryF16) {
  const std::vector<F16> x = every_pattern<F16>();
  std::vector<float> y(x.size());
  HWY_DYNAMIC_DISPATCH(WidenF16)(x.data(), y.data(), x.size());
  expect_same_values(x, y);
}

}  // namespace
}  // namespace onepass

#endif

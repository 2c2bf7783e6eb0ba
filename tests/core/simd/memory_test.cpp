// The loads and stores of core/simd that convert, once for every instruction set that this machine
// can run: each element once, and no byte beside them.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/core/simd/memory_test.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "core/simd/inline-inl.hpp"
#include "core/simd/memory-inl.hpp"

// What is compiled per target only moves data; everything is judged below, once.
HWY_BEFORE_NAMESPACE();
namespace onepass::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

size_t LanesOf(DType compute) {
  return compute == DType::f64 ? hn::Lanes(hn::ScalableTag<double>())
                               : hn::Lanes(hn::ScalableTag<float>());
}

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

}  // namespace
}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

#include "tests/core/simd/every_isa.hpp"

namespace onepass {

HWY_EXPORT(LanesOf);
HWY_EXPORT(LoadTails);
HWY_EXPORT(StoreTails);
HWY_EXPORT(Packs);

namespace {

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

}  // namespace
}  // namespace onepass

#endif

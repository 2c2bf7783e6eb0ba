// The laws of the one idea: whatever tree of merges a row is folded with, the state is the row's.
#include "core/state.hpp"

#include <bit>

#include "tests/core/states.hpp"

namespace onepass::test {
namespace {

template <class T>
bool same_bits(T a, T b) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  return std::bit_cast<Bits>(a) == std::bit_cast<Bits>(b);
}

// The state of some row, as often as not one with a maximum near the others': only then does each
// side count in a merge.
template <class T>
rc::Gen<State<T>> state() {
  const auto near =
      rc::gen::map(rc::gen::pair(rc::gen::inRange(-3000, 3001), rc::gen::inRange(1000, 100000)),
                   [](std::pair<int, int> k) {
                     return State<T>{T(k.first) / 1000, T(k.second) / 1000};
                   });
  return rc::gen::oneOf(near, rc::gen::map(row<T>(), [](const auto& x) { return fold(x); }));
}

template <class T>
class StateTest : public testing::Test {};
TYPED_TEST_SUITE(StateTest, FloatAndDouble);

TYPED_TEST(StateTest, IdentityAndLeafAreWhatTheySay) {
  using T = TypeParam;
  EXPECT_EQ(identity<T>().m, -kInf<T>);
  EXPECT_EQ(identity<T>().d, T(0));
  EXPECT_EQ(weight(identity<T>(), T(1)), T(0));
  EXPECT_EQ(logsumexp(identity<T>()), -kInf<T>);
  EXPECT_EQ(leaf(T(3)).m, T(3));
  EXPECT_EQ(weight(leaf(T(3)), T(3)), T(1));
  EXPECT_EQ(logsumexp(leaf(T(3))), T(3));
}

TYPED_TEST(StateTest, TwoElementsByHand) {
  using T = TypeParam;
  const State<T> s = merge(leaf(T(0)), leaf(std::log(T(3))));  // weights 1 : 3
  EXPECT_NEAR(weight(s, T(0)), 0.25, 4 * kEpsilon<T>);
  EXPECT_NEAR(weight(s, std::log(T(3))), 0.75, 4 * kEpsilon<T>);
  EXPECT_NEAR(logsumexp(s), std::log(T(4)), 4 * kEpsilon<T>);
}

TYPED_TEST(StateTest, MergeCommutesBitForBit) {
  using T = TypeParam;
  holds([] {
    const State<T> a = *state<T>();
    const State<T> b = *state<T>();
    const State<T> ab = merge(a, b);
    const State<T> ba = merge(b, a);
    RC_ASSERT(ab.m == ba.m);
    RC_ASSERT(same_bits(ab.d, ba.d));
  });
}

TYPED_TEST(StateTest, MergeAssociates) {
  using T = TypeParam;
  holds([] {
    const State<T> a = *state<T>();
    const State<T> b = *state<T>();
    const State<T> c = *state<T>();
    expect_same_set(merge(merge(a, b), c), merge(a, merge(b, c)), 2);
  });
}

TYPED_TEST(StateTest, IdentityChangesNothingOnEitherSide) {
  using T = TypeParam;
  holds([] {
    const State<T> a = *state<T>();
    for (const State<T>& same : {merge(a, identity<T>()), merge(identity<T>(), a)}) {
      RC_ASSERT(same_bits(same.m, a.m));
      RC_ASSERT(same_bits(same.d, a.d));
    }
  });
}

TYPED_TEST(StateTest, AnyCutsAndAnyTreeGiveTheWholeRow) {
  using T = TypeParam;
  holds([](std::uint64_t seed) {
    const std::vector<T> x = *row<T>();
    std::vector<State<T>> pieces;
    std::mt19937_64 random(seed);
    for (auto begin = x.begin(); begin != x.end();) {
      const auto end =
          begin + 1 +
          static_cast<std::ptrdiff_t>(random() % static_cast<std::uint64_t>(x.end() - begin));
      pieces.push_back(fold(std::vector<T>(begin, end)));
      begin = end;
      if (random() % 4 == 0) pieces.push_back(identity<T>());  // a thread without work
    }
    expect_same_set(merge_anyhow(pieces, seed), fold(x), x.size());
  });
}

TYPED_TEST(StateTest, EveryTreeOfLeavesSumsWhatThereIs) {
  using T = TypeParam;
  holds([](std::uint64_t seed) {
    const std::vector<T> x = *row<T>();
    std::vector<State<T>> leaves;
    for (const T v : x) leaves.push_back(merge(identity<T>(), leaf(v)));
    const State<T> s = merge_anyhow(leaves, seed);
    const long double exact = exact_sum(x);
    RC_ASSERT(s.m == *std::max_element(x.begin(), x.end()));
    RC_ASSERT(std::abs(s.d - exact) <= tolerance<T>(x.size()) * exact);
  });
}

TYPED_TEST(StateTest, LogsumexpAgainstLongDouble) {
  using T = TypeParam;
  holds([] {
    const std::vector<T> x = *row<T>();
    const long double m = *std::max_element(x.begin(), x.end());
    const long double exact = m + std::log(exact_sum(x));
    RC_ASSERT(std::abs(logsumexp(fold(x)) - exact) <=
              tolerance<T>(x.size()) + 2 * kEpsilon<T> * std::abs(exact));
  });
}

TYPED_TEST(StateTest, WeightsSumToOneAndAreTheSoftmax) {
  using T = TypeParam;
  holds([] {
    const std::vector<T> x = *row<T>();
    const State<T> s = fold(x);
    const long double m = s.m;
    const long double exact = exact_sum(x);
    long double total = 0;
    for (const T v : x) {
      const long double w = weight(s, v);
      RC_ASSERT(w >= 0);
      RC_ASSERT(std::abs(w - std::exp(v - m) / exact) <= tolerance<T>(x.size()));
      total += w;
    }
    RC_ASSERT(std::abs(total - 1) <= tolerance<T>(x.size()));
  });
}

// Multiples of 1/8 below 2^15: neither x + shift nor x − m rounds, so the bits must not change.
TYPED_TEST(StateTest, AShiftOfTheRowMovesOnlyTheMaximum) {
  using T = TypeParam;
  holds([] {
    const auto eighths = rc::gen::map(rc::gen::inRange(-800, 801), [](int k) { return T(k) / 8; });
    const std::vector<T> x = *rc::gen::nonEmpty(rc::gen::container<std::vector<T>>(eighths));
    const T shift = *rc::gen::map(rc::gen::inRange(-80000, 80001), [](int k) { return T(k) / 8; });
    std::vector<T> shifted = x;
    for (T& v : shifted) v += shift;
    const State<T> a = fold(x);
    const State<T> b = fold(shifted);
    RC_ASSERT(b.m == a.m + shift);
    RC_ASSERT(same_bits(a.d, b.d));
    for (std::size_t i = 0; i < x.size(); ++i) {
      RC_ASSERT(same_bits(weight(a, x[i]), weight(b, shifted[i])));
    }
  });
}

TYPED_TEST(StateTest, NanStaysNanFromEveryPositionThroughEveryTree) {
  using T = TypeParam;
  holds([](std::uint64_t seed) {
    std::vector<T> x =
        *rc::gen::nonEmpty(rc::gen::resize(20, rc::gen::container<std::vector<T>>(logit<T>())));
    for (std::size_t position = 0; position < x.size(); ++position) {
      std::vector<T> poisoned = x;
      poisoned[position] = kNan<T>;
      std::vector<State<T>> leaves;
      for (const T v : poisoned) leaves.push_back(leaf(v));
      for (const State<T>& s : {fold(poisoned), merge_anyhow(leaves, seed)}) {
        for (const T v : poisoned) RC_ASSERT(std::isnan(weight(s, v)));
        RC_ASSERT(std::isnan(weight(s, T(0))));
        RC_ASSERT(std::isnan(logsumexp(s)));
      }
    }
  });
}

TYPED_TEST(StateTest, OnlyMinusInfIsTheEmptySet) {
  using T = TypeParam;
  holds([](std::uint64_t seed) {
    const auto count = *rc::gen::inRange<std::size_t>(1, 30);
    const std::vector<T> x(count, -kInf<T>);
    std::vector<State<T>> parts;
    for (const T v : x) parts.push_back(merge(identity<T>(), leaf(v)));
    for (const State<T>& s : {fold(x), merge_anyhow(parts, seed)}) {
      RC_ASSERT(s.m == -kInf<T>);
      RC_ASSERT(s.d == T(0));
      RC_ASSERT(weight(s, -kInf<T>) == T(0));
      RC_ASSERT(logsumexp(s) == -kInf<T>);
    }
    const State<T> a = fold(*row<T>());  // and so it merges like the identity
    const State<T> same = merge(fold(x), a);
    RC_ASSERT(same_bits(same.m, a.m) && same_bits(same.d, a.d));
  });
}

TYPED_TEST(StateTest, MinusInfWeighsNothingAmongOthers) {
  using T = TypeParam;
  holds([](std::uint64_t seed) {
    std::vector<T> x = *row<T>();
    const State<T> without = fold(x);
    const auto extra = *rc::gen::inRange<std::size_t>(1, 10);
    x.insert(x.end(), extra, -kInf<T>);
    std::shuffle(x.begin(), x.end(), std::mt19937_64(seed));
    const State<T> s = fold(x);
    expect_same_set(s, without, x.size());
    RC_ASSERT(weight(s, -kInf<T>) == T(0));
  });
}

TYPED_TEST(StateTest, PlusInfGivesNanWeights) {
  using T = TypeParam;
  holds([](std::uint64_t seed) {
    std::vector<T> x = *row<T>();
    x.insert(x.begin() + static_cast<std::ptrdiff_t>(seed % (x.size() + 1)), kInf<T>);
    const State<T> s = fold(x);
    RC_ASSERT(s.m == kInf<T>);  // what tells it from a NaN: its lse is +inf
    for (const T v : x) RC_ASSERT(std::isnan(weight(s, v)));
  });
  EXPECT_TRUE(std::isnan(weight(leaf(kInf<T>), kInf<T>)));
}

TYPED_TEST(StateTest, FiniteExtremesDoNotOverflow) {
  using T = TypeParam;
  for (const std::vector<T>& x : {std::vector<T>{kHuge<T>, -kHuge<T>}, {-kHuge<T>, kHuge<T>}}) {
    const State<T> s = fold(x);
    EXPECT_EQ(weight(s, kHuge<T>), T(1));
    EXPECT_EQ(weight(s, -kHuge<T>), T(0));
    EXPECT_EQ(logsumexp(s), kHuge<T>);
  }
  const State<T> low = fold(std::vector<T>(4, -kHuge<T>));
  EXPECT_EQ(weight(low, -kHuge<T>), T(0.25));
  EXPECT_EQ(logsumexp(low), -kHuge<T>);
  const T lowest = std::numeric_limits<T>::lowest();
  EXPECT_EQ(weight(fold(std::vector<T>{lowest, -kInf<T>}), lowest), T(1));
}

}  // namespace
}  // namespace onepass::test

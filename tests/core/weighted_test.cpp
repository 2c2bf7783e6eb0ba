// The state with a payload: whatever tree of merges, the payload's mean is the softmax sum.
#include "core/weighted.hpp"

#include "tests/core/states.hpp"

namespace onepass::test {
namespace {

template <class T>
class WeightedTest : public testing::Test {};
TYPED_TEST_SUITE(WeightedTest, FloatAndDouble);

// A payload of two numbers, as attention's rows of V are many.
template <class T>
struct Pair {
  T first, second;
  friend Pair operator*(Pair p, T factor) { return {p.first * factor, p.second * factor}; }
  friend Pair operator+(Pair a, Pair b) { return {a.first + b.first, a.second + b.second}; }
};

template <class T>
using WeightedPair = Weighted<T, Pair<T>>;

TYPED_TEST(WeightedTest, MeanIsTheSoftmaxSumForEveryTree) {
  using T = TypeParam;
  holds([](std::uint64_t seed) {
    const std::vector<T> x = *row<T>();
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<T> value(-4, 4);
    const long double m = *std::max_element(x.begin(), x.end());
    const long double d = exact_sum(x);
    std::vector<WeightedPair<T>> parts = {{identity<T>(), {}}};  // the empty set is always one
    long double first = 0;
    long double second = 0;
    for (const T v : x) {
      const Pair<T> payload{value(random), value(random)};
      parts.push_back(leaf(v, payload));
      first += std::exp(v - m) / d * payload.first;
      second += std::exp(v - m) / d * payload.second;
    }
    const WeightedPair<T> all = merge_anyhow(parts, seed);
    RC_ASSERT(std::abs(mean(all).first - first) <= 4 * tolerance<T>(x.size()));
    RC_ASSERT(std::abs(mean(all).second - second) <= 4 * tolerance<T>(x.size()));
    expect_same_set(all.state, fold(x), x.size());
  });
}

TYPED_TEST(WeightedTest, MeanOfNothingIsZero) {
  using T = TypeParam;
  const Weighted<T, T> none{identity<T>(), T(0)};
  const Weighted<T, T> hidden = merge(leaf(-kInf<T>, T(7)), leaf(-kInf<T>, T(9)));
  EXPECT_EQ(mean(none), T(0));
  EXPECT_EQ(mean(merge(none, none)), T(0));
  EXPECT_EQ(mean(hidden), T(0));
  EXPECT_EQ(mean(merge(hidden, leaf(T(2), T(5)))), T(5));
  EXPECT_EQ(mean(merge(leaf(T(2), T(5)), none)), T(5));
}

TYPED_TEST(WeightedTest, ANanComesBeforeAnInfinityOnEitherSide) {
  using T = TypeParam;
  const Weighted<T, T> nan{{kNan<T>, T(1)}, T(1)};
  const Weighted<T, T> infinite = leaf(kInf<T>, T(1));
  EXPECT_TRUE(std::isnan(logsumexp(merge(nan, infinite).state)));
  EXPECT_TRUE(std::isnan(logsumexp(merge(infinite, nan).state)));
}

TYPED_TEST(WeightedTest, MeanKeepsANan) {
  using T = TypeParam;
  const Weighted<T, T> nan = leaf(kNan<T>, T(1));
  const Weighted<T, T> one = leaf(T(0), T(1));
  EXPECT_TRUE(std::isnan(mean(merge(nan, one))));
  EXPECT_TRUE(std::isnan(mean(merge(one, nan))));
  EXPECT_TRUE(std::isnan(mean(merge(merge(one, nan), one))));
}

}  // namespace
}  // namespace onepass::test

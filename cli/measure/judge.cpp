#include "cli/measure/judge.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <span>

namespace onepass::cli {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr double kNormal = 2.5758293035489004;  // the normal distribution's quantile of 99.5 %

bool is_time(double us) { return std::isfinite(us) && us > 0; }

double median(std::vector<double> values) {
  if (values.empty()) return kNone;
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// Student's quantile of 99.5 %. A fraction of a degree of freedom does not count.
double student(double degrees) {
  constexpr double few[] = {63.657, 9.925, 5.841, 4.604};
  const double n = std::floor(degrees);
  if (n <= 4) return few[std::max(static_cast<int>(n), 1) - 1];
  // Abramowitz and Stegun 26.7.5, off by less than 0.1 % here.
  const double z = kNormal, z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z, z9 = z7 * z * z;
  return z + (z3 + z) / (4 * n) + (5 * z5 + 16 * z3 + 3 * z) / (96 * n * n) +
         (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * n * n * n) +
         (79 * z9 + 776 * z7 + 1482 * z5 - 1920 * z3 - 945 * z) / (92160 * n * n * n * n);
}

// The first and second derivative of log Γ(x), x > 0: stepped up to where the series are exact.
double digamma(double x) {
  double below = 0;
  for (; x < 10; ++x) below -= 1 / x;
  const double square = 1 / (x * x);
  return below + std::log(x) - 0.5 / x - square * (1.0 / 12 - square / 120);
}

double trigamma(double x) {
  double below = 0;
  for (; x < 10; ++x) below += 1 / (x * x);
  const double square = 1 / (x * x);
  return below + 1 / x + square / 2 + square / x * (1.0 / 6 - square / 30);
}

double inverse_trigamma(double y) {
  double low = 1e-3, high = 1e6;  // trigamma falls
  for (int i = 0; i < 60; ++i) {
    const double middle = std::sqrt(low * high);
    (trigamma(middle) > y ? low : high) = middle;
  }
  return low;
}

// What the observations of one problem say.
struct Estimate {
  double center = kNone;  // their mean
  double median = kNone;  // what is shown: a process that was hit moves it less than the mean
  double variance = 0;    // of one observation
  double degrees = 0;     // of freedom of the variance
  int observations = 0;
  bool of_rounds = false;
};

// The mean after a seventh is taken off each end: one bad round of seven says nothing. What was
// taken off counts as if it were the outermost that is left (Yuen's estimate for trimmed means).
Estimate estimate(std::vector<double> observations) {
  Estimate out;
  out.observations = static_cast<int>(observations.size());
  if (out.observations < kFewestPairs) return out;
  out.median = median(observations);
  std::ranges::sort(observations);
  const std::size_t off = observations.size() / 7;
  const std::size_t kept = observations.size() - 2 * off;
  const std::span<const double> inner(observations.data() + off, kept);
  out.center = std::accumulate(inner.begin(), inner.end(), 0.0) / static_cast<double>(kept);
  double mean = 0;
  for (double& each : observations) {
    each = std::clamp(each, inner.front(), inner.back());
    mean += each / static_cast<double>(observations.size());
  }
  double squares = 0;
  for (const double each : observations) squares += (each - mean) * (each - mean);
  out.degrees = static_cast<double>(kept - 1);
  out.variance =
      squares / out.degrees * static_cast<double>(observations.size()) / static_cast<double>(kept);
  // A file keeps four digits, so times that seem the same may be this far apart.
  constexpr double kRounding = 3e-4;
  out.variance = std::max(out.variance, kRounding * kRounding);
  return out;
}

std::vector<double> observations_of(const Timings& problem, bool of_rounds) {
  std::vector<double> out;
  for (std::size_t i = 0; i < problem.before.size(); ++i) {
    const Timing& before = problem.before[i];
    const Timing& after = problem.after[i];
    if (!of_rounds) {
      out.push_back(std::log(before.median_us / after.median_us));
      continue;
    }
    const std::size_t rounds = std::min(before.rounds_us.size(), after.rounds_us.size());
    for (std::size_t r = 0; r < rounds; ++r) {
      if (!is_time(before.rounds_us[r]) || !is_time(after.rounds_us[r])) continue;
      out.push_back(std::log(before.rounds_us[r] / after.rounds_us[r]));
    }
  }
  return out;
}

// Three to five observations say little about their own variance: where they happen to lie
// together, the interval is too narrow, and the quantile that allows for that makes all others too
// wide. The problems of one comparison ran on one machine, so their variances are drawn from one
// distribution; each is moved towards its mean, by as much as they agree (Smyth 2004, empirical
// Bayes). Where they do not agree, or are few, each stands for itself.
void share_variances(std::span<Estimate* const> estimates) {
  constexpr std::size_t kFewest = 8;
  constexpr double kMostDegrees = 30;  // a problem's own observations always have a say
  const auto count = static_cast<double>(estimates.size());
  if (estimates.size() < kFewest) return;
  const auto unbiased_log = [](const Estimate& e) {
    return std::log(e.variance) - digamma(e.degrees / 2) + std::log(e.degrees / 2);
  };
  double mean = 0, own = 0;  // the logarithms' mean; their variance were all variances one
  for (const Estimate* e : estimates) {
    mean += unbiased_log(*e) / count;
    own += trigamma(e->degrees / 2) / count;
  }
  double spread = 0;
  for (const Estimate* e : estimates) {
    spread += (unbiased_log(*e) - mean) * (unbiased_log(*e) - mean) / (count - 1);
  }
  const double apart = std::max(spread - own, trigamma(kMostDegrees / 2));
  const double degrees = 2 * inverse_trigamma(apart);
  const double variance = std::exp(mean + digamma(degrees / 2) - std::log(degrees / 2));
  for (Estimate* e : estimates) {
    e->variance = (degrees * variance + e->degrees * e->variance) / (degrees + e->degrees);
    e->degrees += degrees;
  }
}

// Half the width of the interval of the logarithm.
double half_width(const Estimate& e, std::size_t pairs, double shortest_us, const Noise& noise) {
  double half = student(e.degrees) * std::sqrt(e.variance / e.observations);
  if (e.of_rounds) {
    const double processes = noise.process * std::sqrt(2 / static_cast<double>(pairs));
    half = std::hypot(half, kNormal * processes);
  }
  // A median cannot be finer than the clock's steps. Calls that are longer vary by more than a step
  // from one to the next, and their median averages the steps out.
  if (shortest_us < noise.clock_until_us) half += noise.clock_us / shortest_us;
  return half;
}

Speed speed_of(double low, double high, double threshold) {
  const double margin = std::log1p(threshold);
  if (low > margin) return Speed::faster;
  if (high < -margin) return Speed::slower;
  return low > -margin && high < margin ? Speed::same : Speed::unsure;
}

double median_us(const std::vector<Timing>& timings) {
  std::vector<double> medians;
  for (const Timing& each : timings) medians.push_back(each.median_us);
  return median(std::move(medians));
}

}  // namespace

std::string_view name(Speed speed) {
  constexpr std::string_view names[] = {"FASTER", "SLOWER", "SAME", "UNSURE"};
  return names[static_cast<std::size_t>(speed)];
}

Noise noise_of(bool on_gpu) {
  // CUDA's events tell half a microsecond apart; a CPU's clock is read in tens of nanoseconds.
  if (on_gpu) {
    return {.threshold = 0.01, .process = 0.0025, .clock_us = 0.5, .clock_until_us = 20};
  }
  return {.threshold = 0.05, .process = 0.01, .clock_us = 0.05, .clock_until_us = 2};
}

std::vector<Judgement> judge(const std::vector<Timings>& problems, const Noise& noise) {
  std::vector<Estimate> estimates;
  for (const Timings& problem : problems) {
    const bool of_rounds = problem.before.size() < kFewestPairs;
    estimates.push_back(estimate(observations_of(problem, of_rounds)));
    estimates.back().of_rounds = of_rounds;
  }
  for (const bool of_rounds : {false, true}) {
    std::vector<Estimate*> alike;
    for (Estimate& e : estimates) {
      if (e.of_rounds == of_rounds && e.degrees > 0) alike.push_back(&e);
    }
    share_variances(alike);
  }
  std::vector<Judgement> out;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    const Estimate& e = estimates[i];
    Judgement& j = out.emplace_back();
    j.before_us = median_us(problems[i].before);
    j.after_us = median_us(problems[i].after);
    j.observations = e.observations;
    if (e.degrees == 0) {
      j.ratio = j.before_us / j.after_us;
      j.low = j.high = kNone;
      continue;
    }
    const double half =
        half_width(e, problems[i].before.size(), std::min(j.before_us, j.after_us), noise);
    j.ratio = std::exp(std::clamp(e.median, e.center - half, e.center + half));
    j.low = std::exp(e.center - half);
    j.high = std::exp(e.center + half);
    j.speed = speed_of(e.center - half, e.center + half, noise.threshold);
  }
  return out;
}

}  // namespace onepass::cli

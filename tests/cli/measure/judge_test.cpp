// Judging: hand-made times whose interval is known, and many drawn ones whose truth is.
// Not under sanitizers: numbers in, numbers out.
#include "cli/measure/judge.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

namespace onepass::cli {
namespace {

// Pairs of processes with these times, without rounds.
Timings medians(const std::vector<double>& before, const std::vector<double>& after) {
  Timings out;
  for (const double us : before) out.before.push_back({us, {}});
  for (const double us : after) out.after.push_back({us, {}});
  return out;
}

Timings one_process(std::vector<double> before, std::vector<double> after) {
  Timings out;
  out.before.push_back({before[before.size() / 2], std::move(before)});
  out.after.push_back({after[after.size() / 2], std::move(after)});
  return out;
}

Judgement judge_one(const Timings& problem, bool on_gpu) {
  return judge({problem}, noise_of(on_gpu)).front();
}

std::vector<double> scaled(std::vector<double> values, double by) {
  for (double& value : values) value *= by;
  return values;
}

// ---- By hand ----------------------------------------------------------------------------------

TEST(JudgeTest, TheIntervalIsStudentsOfThePairs) {
  const std::vector<double> logs = {0.01, 0.02, 0.03, 0.04, 0.05};
  std::vector<double> before;
  for (const double each : logs) before.push_back(100 * std::exp(each));
  const Judgement j = judge_one(medians(before, std::vector<double>(5, 100)), true);
  const double half = 4.6041 * std::sqrt(0.00025 / 5);  // four degrees of freedom, 99 %
  EXPECT_EQ(j.observations, 5);
  EXPECT_NEAR(std::log(j.ratio), 0.03, 1e-9);
  EXPECT_NEAR(std::log(j.low), 0.03 - half, 1e-5);
  EXPECT_NEAR(std::log(j.high), 0.03 + half, 1e-5);
  EXPECT_NEAR(j.before_us, 100 * std::exp(0.03), 1e-9);
  EXPECT_EQ(j.after_us, 100);
  EXPECT_EQ(j.speed, Speed::unsure);
}

TEST(JudgeTest, EveryVerdict) {
  const std::vector<double> before = {100, 100.1, 99.9, 100.2, 99.8};
  const auto after = [&before](double by) {
    return judge_one(medians(before, scaled({100.1, 100, 100, 100.1, 99.9}, by)), true).speed;
  };
  EXPECT_EQ(after(1), Speed::same);
  EXPECT_EQ(after(1.03), Speed::slower);
  EXPECT_EQ(after(0.97), Speed::faster);
  EXPECT_EQ(after(1.005), Speed::same);
  EXPECT_EQ(after(0.995), Speed::same);
  EXPECT_EQ(after(1.01), Speed::unsure);  // the threshold itself
  EXPECT_EQ(name(Speed::faster), "FASTER");
  EXPECT_EQ(name(Speed::slower), "SLOWER");
  EXPECT_EQ(name(Speed::same), "SAME");
  EXPECT_EQ(name(Speed::unsure), "UNSURE");
}

TEST(JudgeTest, WhatBothSidesShareCancels) {
  const std::vector<double> drifting = {100, 120, 90, 150, 70};
  EXPECT_EQ(judge_one(medians(drifting, drifting), true).speed, Speed::same);
  EXPECT_EQ(judge_one(medians(drifting, scaled(drifting, 1.03)), true).speed, Speed::slower);
}

TEST(JudgeTest, TooFewObservationsAreUnsure) {
  const std::vector<Timings> problems = {medians({100}, {200}), medians({100, 100}, {200, 200}),
                                         one_process({100, 100}, {200, 200})};
  for (const Judgement& j : judge(problems, noise_of(true))) {
    EXPECT_EQ(j.speed, Speed::unsure);
    EXPECT_TRUE(std::isnan(j.low) && std::isnan(j.high));
    EXPECT_EQ(j.ratio, 0.5);
  }
  EXPECT_TRUE(judge({}, noise_of(true)).empty());
}

// Rounds of one process say nothing of how far the next one lies.
TEST(JudgeTest, RoundsOfOneProcessLeaveRoomForTheNext) {
  const std::vector<double> rounds = {100, 100, 100, 100, 100};
  EXPECT_EQ(judge_one(one_process(rounds, scaled(rounds, 1.015)), true).speed, Speed::unsure);
  EXPECT_EQ(judge_one(one_process(rounds, scaled(rounds, 1.03)), true).speed, Speed::slower);
  Noise restless = noise_of(true);
  restless.process = 0.02;
  EXPECT_EQ(judge({one_process(rounds, scaled(rounds, 1.03))}, restless)[0].speed, Speed::unsure);
  // In three pairs of processes they have shown it.
  EXPECT_EQ(judge({medians({100, 100, 100}, {103, 103, 103})}, restless)[0].speed, Speed::slower);
}

TEST(JudgeTest, RoundsThatAreNoTimesAreLeftOut) {
  const std::vector<double> rounds = {100, std::nan(""), 100, 0, 100};
  const Judgement j = judge_one(one_process(rounds, {103, 103, 103, 103}), true);
  EXPECT_EQ(j.observations, 2);
  EXPECT_EQ(j.speed, Speed::unsure);
}

TEST(JudgeTest, OneBadRoundOfSevenSaysNothing) {
  const std::vector<double> rounds = {100, 101, 100, 99, 100, 101, 99, 100};
  std::vector<double> hit = rounds;
  hit[3] = 300;
  EXPECT_EQ(judge_one(one_process(rounds, scaled(rounds, 1.12)), false).speed, Speed::slower);
  EXPECT_EQ(judge_one(one_process(rounds, scaled(hit, 1.12)), false).speed, Speed::slower);
  EXPECT_NEAR(judge_one(one_process(rounds, hit), false).ratio, 1, 0.01);
}

TEST(JudgeTest, AProcessThatWasHitHidesTheVerdictNotTheRatio) {
  const Judgement j =
      judge_one(medians({100, 101, 100, 99, 100}, {100, 100, 400, 100, 101}), false);
  EXPECT_NEAR(j.ratio, 1, 0.011);
  EXPECT_EQ(j.speed, Speed::unsure);
}

TEST(JudgeTest, ShortCallsCannotBeFinerThanTheClock) {
  const auto slower = [](double us, bool on_gpu) {
    return judge_one(medians(std::vector<double>(5, us), std::vector<double>(5, us * 1.1)), on_gpu);
  };
  EXPECT_EQ(slower(25, true).speed, Speed::slower);
  EXPECT_EQ(slower(4, true).speed, Speed::unsure);
  EXPECT_LT(slower(4, true).low, 1 / 1.1 - 0.1);
  EXPECT_GT(slower(4, true).high, 1 / 1.1 + 0.1);
  EXPECT_EQ(slower(4, false).speed, Speed::slower);
  EXPECT_EQ(slower(0.4, false).speed, Speed::unsure);
}

// ---- Drawn ------------------------------------------------------------------------------------

// What a machine does to times, as relative standard deviations.
struct NoisyMachine {
  bool on_gpu;
  double drift;      // common to the two processes of a pair
  double process;    // from process to process, heavy-tailed
  double round;      // from round to round
  double bad;        // how many rounds are hit by something …
  double bad_most;   // … that adds up to this
  double different;  // the logarithm of how much noisier one problem is than another
};

constexpr NoisyMachine kGpu = {.on_gpu = true,
                               .drift = 0.01,
                               .process = 0.0025,
                               .round = 0.002,
                               .bad = 0.02,
                               .bad_most = 0.05,
                               .different = 0.3};
constexpr NoisyMachine kCpu = {.on_gpu = false,
                               .drift = 0.05,
                               .process = 0.006,
                               .round = 0.012,
                               .bad = 0.05,
                               .bad_most = 0.5,
                               .different = 0.3};

class Draw {
 public:
  Draw(const NoisyMachine& machine, unsigned seed) : machine_(machine), random_(seed) {}

  // A workload, measured in so many pairs of processes of five rounds; `after` takes `slower` more.
  std::vector<Timings> workload(int problems, int pairs, double slower) {
    std::vector<double> drift;
    for (int i = 0; i < pairs; ++i) drift.push_back(machine_.drift * normal());
    std::vector<Timings> out(static_cast<std::size_t>(problems));
    for (Timings& problem : out) {
      const double us = 25 * std::exp(4 * uniform());
      const double more = std::exp(machine_.different * normal());
      for (const double shared : drift) {
        problem.before.push_back(timing(us * std::exp(shared), more));
        problem.after.push_back(timing(us * std::exp(shared) * (1 + slower), more));
      }
    }
    return out;
  }

 private:
  double normal() { return std::normal_distribution<double>()(random_); }
  double uniform() { return std::uniform_real_distribution<double>()(random_); }
  double heavy() { return std::student_t_distribution<double>(4)(random_) / std::sqrt(2.0); }

  Timing timing(double us, double more) {
    const double here = us * std::exp(machine_.process * more * heavy());
    Timing out;
    for (int r = 0; r < 5; ++r) {
      const double hit = uniform() < machine_.bad ? 1 + machine_.bad_most * uniform() : 1;
      out.rounds_us.push_back(here * hit * std::exp(machine_.round * more * normal()));
    }
    std::vector<double> sorted = out.rounds_us;
    std::sort(sorted.begin(), sorted.end());
    out.median_us = sorted[2];
    return out;
  }

  NoisyMachine machine_;
  std::mt19937 random_;
};

// The share of judgements for which something holds, over many workloads of 40 problems.
double share_of(const NoisyMachine& machine, int pairs, double slower, const Noise& noise,
                const std::function<bool(const Judgement&)>& holds) {
  constexpr int kSeeds = 60, kProblems = 40;
  int count = 0;
  for (unsigned seed = 1; seed <= kSeeds; ++seed) {
    Draw draw(machine, seed);
    for (const Judgement& j : judge(draw.workload(kProblems, pairs, slower), noise)) {
      count += holds(j) ? 1 : 0;
    }
  }
  return static_cast<double>(count) / (kSeeds * kProblems);
}

bool is_slower(const Judgement& j) { return j.speed == Speed::slower; }
bool is_change(const Judgement& j) { return is_slower(j) || j.speed == Speed::faster; }

TEST(JudgeDrawnTest, OfOneProgramTwiceNoChangeIsSeen) {
  for (const NoisyMachine& machine : {kGpu, kCpu}) {
    NoisyMachine wild =
        machine;  // far beyond the threshold: nothing but the interval is in the way
    wild.process *= 20;
    wild.round *= 20;
    for (const int pairs : {3, 5, 10}) {
      const Noise noise = noise_of(machine.on_gpu);
      EXPECT_LE(share_of(machine, pairs, 0, noise, is_change), 0.01) << pairs;
      EXPECT_LE(share_of(wild, pairs, 0, noise, is_change), 0.015) << pairs;
    }
    EXPECT_LE(share_of(machine, 1, 0, noise_of(machine.on_gpu), is_change), 0.01);
  }
}

// Also where nothing is shared between problems that are not alike.
TEST(JudgeDrawnTest, TheIntervalHoldsTheTruth) {
  for (const double different : {0.0, 0.5, 1.5}) {
    NoisyMachine machine = kGpu;
    machine.different = different;
    for (const int pairs : {3, 5, 8}) {
      const auto holds = [](const Judgement& j) { return j.low <= 1 && j.high >= 1; };
      const double share = share_of(machine, pairs, 0, noise_of(true), holds);
      EXPECT_GE(share, 0.983) << different << " " << pairs;
      EXPECT_LE(share, 0.999) << different << " " << pairs << ": wider than it need be";
    }
  }
}

TEST(JudgeDrawnTest, APlantedSlowdownIsFound) {
  EXPECT_GE(share_of(kGpu, 5, 0.03, noise_of(true), is_slower), 0.95);
  EXPECT_GE(share_of(kCpu, 5, 0.10, noise_of(false), is_slower), 0.95);
}

TEST(JudgeDrawnTest, LessThanTheThresholdIsNot) {
  EXPECT_LE(share_of(kGpu, 5, 0.005, noise_of(true), is_change), 0.001);
  EXPECT_LE(share_of(kCpu, 5, 0.03, noise_of(false), is_change), 0.001);
}

TEST(JudgeDrawnTest, QuietMachinesAreNotUnsure) {
  const auto is_same = [](const Judgement& j) { return j.speed == Speed::same; };
  EXPECT_GE(share_of(kGpu, 5, 0, noise_of(true), is_same), 0.9);
  EXPECT_GE(share_of(kCpu, 5, 0, noise_of(false), is_same), 0.9);
}

// Three lucky processes are not sure where all others are not; one wild problem is not calmed.
TEST(JudgeDrawnTest, ProblemsTellEachOtherHowNoisyTheMachineIs) {
  Draw draw(kCpu, 5);
  std::vector<Timings> problems = draw.workload(40, 3, 0);
  problems[0] = medians({100, 100, 100}, {101, 101, 101});
  problems[1] = medians({100, 100, 100}, {130, 100, 160});
  const std::vector<Judgement> together = judge(problems, noise_of(false));
  const auto width = [](const Judgement& j) { return std::log(j.high / j.low); };
  EXPECT_GT(width(together[0]), 10 * width(judge_one(problems[0], false)));
  EXPECT_GT(width(together[1]), 0.5);
  // Too few to tell.
  problems.resize(7);
  EXPECT_EQ(width(judge(problems, noise_of(false))[0]), width(judge_one(problems[0], false)));
}

}  // namespace
}  // namespace onepass::cli

// The explicit list of variants, as `onepass list` and the dispatcher rely on it.
// Not under sanitizers: a list of names.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "dispatch/choose.hpp"
#include "dispatch/machines.hpp"
#include "dispatch/variant.hpp"

namespace onepass {
namespace {

const Machine& kCpu = known_machines()[0];
const Machine& kGpu = known_gpus()[0];

TEST(RegistryTest, NamesAreUniqueWithinAnOp) {
  for (const Op op : kAllOps) {
    std::set<std::string_view> names;
    EXPECT_FALSE(variants(op).empty()) << name(op);
    for (const Variant& v : variants(op)) {
      EXPECT_TRUE(names.insert(v.name).second) << name(op) << " has two of " << v.name;
      EXPECT_EQ(v.name.find_first_of(" ,="), std::string_view::npos)
          << v.name << " cannot be written in a problem or a list";
    }
  }
}

TEST(RegistryTest, EveryVariantSaysWhatItNeedsAndHowItWorks) {
  for (const Op op : kAllOps) {
    for (const Variant& v : variants(op)) {
      EXPECT_FALSE(v.name.empty()) << name(op);
      EXPECT_FALSE(v.needs.empty()) << v.name;
      EXPECT_FALSE(v.idea.empty()) << v.name;
      EXPECT_NE(v.refuses, nullptr) << v.name;
      EXPECT_TRUE(v.run || v.device == Device::cuda) << v.name;
      EXPECT_NE(v.plan, nullptr) << v.name;
      EXPECT_NE(name(v.role), "?") << v.name;
    }
  }
}

TEST(RegistryTest, AVariantIsListedUnderExactlyItsOps) {
  for (const Op op : kAllOps) {
    for (const Variant& v : variants(op)) {
      EXPECT_NE(v.ops & only(op), 0U) << v.name << " under " << name(op);
      for (const Op other : kAllOps) {
        const bool listed = find_variant(other, v.name) != nullptr;
        const bool claims = (v.ops & only(other)) != 0;
        EXPECT_TRUE(listed || !claims) << v.name << " is missing under " << name(other);
      }
    }
  }
}

AttentionFacts some_attention(std::int64_t queries, std::int64_t keys, unsigned flags) {
  AttentionFacts a{.batch = 2, .heads = 8, .kv_heads = 2, .queries = queries, .keys = keys};
  a.dim = (flags & 1) != 0 ? 64 : 128;
  a.aligned = (flags & 2) != 0;
  a.causal = (flags & 4) != 0;
  a.softcap = a.additive = a.boolean = a.alibi = a.sinks = (flags & 8) != 0;
  a.lengths = a.q_offsets = (flags & 16) != 0;
  a.page = (flags & 32) != 0 ? 16 : 0;
  return a;
}

std::vector<Problem> any_problems(Op op) {
  std::vector<Problem> problems;
  constexpr std::array dtypes = {DType::f32, DType::f16, DType::bf16, DType::f64};
  for (const std::int64_t rows : {1, 1000}) {
    for (const std::int64_t cols : {0, 512, 513, 1 << 20}) {
      for (const DType in : dtypes) {
        for (const DType out : dtypes) {
          for (unsigned flags = 0; flags < 64; ++flags) {
            problems.push_back({.op = op,
                                .rows = rows,
                                .cols = cols,
                                .in = in,
                                .out = out,
                                .unit_stride = (flags & 1) != 0,
                                .unit_rows = (flags & 2) != 0,
                                .plain = (flags & 4) != 0,
                                .whole_rows = (flags & 8) != 0,
                                .wants_lse = (flags & 16) != 0,
                                .in_place = (flags & 32) != 0});
            if (attends(op)) problems.back().attention = some_attention(rows, cols, flags);
          }
        }
      }
    }
  }
  return problems;
}

TEST(RegistryTest, SomethingThatShipsRunsEverything) {
  for (const Op op : kAllOps) {
    const std::vector<Problem> problems = any_problems(op);
    const auto runs_all = [&](const Variant& v) {
      return v.role == Role::ship &&
             std::all_of(problems.begin(), problems.end(),
                         [&](const Problem& p) { return v.refuses(p, kCpu).empty(); });
    };
    EXPECT_TRUE(std::any_of(variants(op).begin(), variants(op).end(), runs_all)) << name(op);
  }
}

// So the order of the list decides nothing.
TEST(RegistryTest, OfThoseThatShipAndCanRunAProblemOneDoesNotYield) {
  std::vector<Machine> machines = {kCpu};
  for (const Machine& gpu : known_gpus()) machines.push_back(gpu);
  for (const Op op : kAllOps) {
    for (Problem p : any_problems(op)) {
      for (const std::int64_t k : {1, 50, 3000}) {
        p.k = k;
        p.weighted = op == Op::cross_entropy && k == 50;
        for (const Machine& m : machines) {
          std::vector<std::string_view> able, best;
          for (const Variant& v : variants(op)) {
            const bool ships = v.role == Role::ship && v.device == m.device();
            if (!ships || !v.refuses(p, m).empty()) continue;
            able.push_back(v.name);
            if (v.yields == nullptr || !v.yields(p, m, nullptr)) best.push_back(v.name);
          }
          ASSERT_EQ(best.size(), able.empty() ? 0U : 1U)
              << name(op) << ' ' << p.rows << 'x' << p.cols << " k=" << k << " on " << m.name
              << (best.empty() ? "" : best.front());
          ASSERT_EQ(choose(p, m).variant(), best.empty() ? "" : best.front());
        }
      }
    }
  }
}

TEST(RegistryTest, EveryVariantRefusesTheOtherDevice) {
  for (const Op op : kAllOps) {
    for (const Problem& p : any_problems(op)) {
      for (const Variant& v : variants(op)) {
        const Machine& other = v.device == Device::cpu ? kGpu : kCpu;
        ASSERT_NE(v.refuses(p, other), "") << name(op) << ' ' << v.name;
      }
    }
  }
}

TEST(RegistryTest, AnOldNameIsAnsweredWithTodays) {
  const auto said = [](Op op, std::string_view name) {
    return no_such_variant(op, name).message();
  };
  EXPECT_NE(said(Op::attention, "hopper").find("called gpu_hopper now"), std::string::npos);
  EXPECT_NE(said(Op::attention, "flash_mma").find("called gpu_flash now"), std::string::npos);
  EXPECT_EQ(said(Op::softmax, "hopper").find("now"), std::string::npos);
  EXPECT_EQ(name_today("simt"), "gpu_simt");
  EXPECT_EQ(name_today("cpu_row"), "cpu_row");
}

TEST(RegistryTest, NoVariantRefusesEverything) {
  for (const Op op : kAllOps) {
    std::vector<Problem> problems = any_problems(op);
    problems.push_back({.op = op, .rows = 3, .cols = 50257, .k = 50});  // of a cluster that guesses
    for (const Variant& v : variants(op)) {
      EXPECT_TRUE(std::any_of(problems.begin(), problems.end(),
                              [&](const Problem& p) {
                                return v.refuses(p, v.device == Device::cpu ? kCpu : kGpu).empty();
                              }))
          << name(op) << " " << v.name;
    }
  }
}

TEST(RegistryTest, ShortAndLaneVariantsRefuseWhatTheyCannotDo) {
  const Variant* brief = find_variant(Op::softmax, "cpu_short");
  const Variant* lanes = find_variant(Op::softmax, "cpu_lanes");
  ASSERT_NE(brief, nullptr);
  ASSERT_NE(lanes, nullptr);
  const Problem dense{.op = Op::softmax, .rows = 8, .cols = 512};
  Problem apart = dense;
  apart.unit_stride = false;
  apart.unit_rows = true;
  EXPECT_EQ(brief->refuses(dense, kCpu), "");
  EXPECT_EQ(lanes->refuses(apart, kCpu), "");
  EXPECT_NE(brief->refuses(apart, kCpu), "");
  EXPECT_NE(lanes->refuses(dense, kCpu), "");
  const auto both_refuse = [&](auto change) {
    Problem for_short = dense;
    Problem for_lanes = apart;
    change(for_short);
    change(for_lanes);
    return !brief->refuses(for_short, kCpu).empty() && !lanes->refuses(for_lanes, kCpu).empty();
  };
  EXPECT_TRUE(both_refuse([](Problem& p) { p.plain = false; }));
  EXPECT_TRUE(both_refuse([](Problem& p) { p.whole_rows = false; }));
  EXPECT_TRUE(both_refuse([](Problem& p) { p.wants_lse = true; }));
  Problem long_rows = dense;
  long_rows.cols = 513;
  EXPECT_NE(brief->refuses(long_rows, kCpu), "");
  Problem wide = dense;
  wide.in = DType::f64;
  EXPECT_NE(brief->refuses(wide, kCpu), "");
}

TEST(RegistryTest, FindVariantFindsByOpAndName) {
  for (const Op op : kAllOps) {
    for (const Variant& v : variants(op)) {
      const Variant* found = find_variant(op, v.name);
      ASSERT_NE(found, nullptr) << v.name;
      EXPECT_EQ(found, &v) << v.name;
    }
    EXPECT_EQ(find_variant(op, ""), nullptr);
    EXPECT_EQ(find_variant(op, "cpu"), nullptr);
    EXPECT_EQ(find_variant(op, "CPU_ROW"), nullptr);
  }
  EXPECT_EQ(find_variant(Op::cross_entropy, "cpu_lanes"), nullptr);
}

TEST(RegistryTest, OpsAndTheirNames) {
  for (const Op op : kAllOps) EXPECT_EQ(*op_named(name(op)), op);
  EXPECT_EQ(op_named("soft_max"), nullptr);
  EXPECT_EQ(op_named(""), nullptr);
}

}  // namespace
}  // namespace onepass

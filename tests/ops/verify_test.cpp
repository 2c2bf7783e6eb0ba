// Every line of the test workloads against the oracle, in every variant and instruction set.
#include "cli/measure/verify.hpp"
#include "dispatch/machines.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <ostream>
#include <set>

#include "cli/problem/fill.hpp"
#include "dispatch/choose.hpp"
#include "dispatch/variant.hpp"
#include "runtime/host.hpp"
#include "tests/support/problem.hpp"

namespace onepass::cli {
namespace {

// Lines with more elements than this are a test of their own, in a suite that sanitizers leave out.
constexpr std::int64_t kLong = 20000;

// Lines are dealt to this many tests an op: few enough processes, small enough to run side by side.
constexpr int kShares = 4;

std::vector<Case> workload(const std::string& name) {
  std::vector<Case> cases;
  const std::string path = std::string(ONEPASS_SOURCE_DIR) + "/workloads/" + name;
  const Status status = read_workload(path, Op::softmax, cases);
  EXPECT_TRUE(status.ok()) << status.message();
  return cases;
}

const std::vector<Case>& row_ops() {
  static const std::vector<Case> cases = workload("test_row_ops.txt");
  return cases;
}

const std::vector<Case>& fill_problems() {
  static const std::vector<Case> cases = workload("test_fills.txt");
  return cases;
}

bool is_long(const Case& c) { return c.rows() * c.cols() > kLong; }

// The op's lines for which `wanted` holds.
template <class Wanted>
std::vector<Case> lines_of(const std::vector<Case>& all, Op op, Wanted wanted) {
  std::vector<Case> lines;
  for (const Case& c : all) {
    if (c.op == op && wanted(c)) lines.push_back(c);
  }
  return lines;
}

// Every so many lines are enough for the subset of tests that runs under sanitizers.
std::size_t stride() { return std::getenv("ONEPASS_TEST_SUBSET") == nullptr ? 1 : 16; }

void verify_all(const std::vector<Case>& lines, bool all_fills) {
  ASSERT_FALSE(lines.empty());
  Verifier verifier;
  for (std::size_t i = 0; i < lines.size(); i += stride()) {
    const Case& line = lines[i];
    const std::vector<Case> cases = expand(line, all_fills);
    EXPECT_FALSE(cases.empty()) << to_string(line) << "\n    nothing can run it";
    for (const Case& c : cases) {
      const Verdict verdict = verifier.verify(c);
      EXPECT_EQ(verdict.kind, Verdict::Kind::passed)
          << "onepass verify " << to_string(c) << "\n    " << verdict.message;
    }
  }
}

TEST(VerifyChoosingTest, EveryLine) { verify_all(workload("test_topk.txt"), false); }

TEST(VerifyChoosingTest, EveryLineInF64) { verify_all(workload("test_topk_f64.txt"), false); }

TEST(VerifyChoosingTest, WhereListsAreTooShort) {
  verify_all(workload("test_topk_walk.txt"), false);
}

TEST(VerifyChoosingTest, EveryFill) { verify_all(workload("test_topk_fills.txt"), true); }

// Dealt out: one process would take the longest of all.
class VerifyAttentionTest : public testing::TestWithParam<std::size_t> {};

TEST_P(VerifyAttentionTest, EveryLine) {
  const std::vector<Case> all = workload("test_attention.txt");
  std::vector<Case> mine;
  for (std::size_t i = GetParam(); i < all.size(); i += kShares) mine.push_back(all[i]);
  verify_all(mine, false);
}

INSTANTIATE_TEST_SUITE_P(Shares, VerifyAttentionTest, testing::Range<std::size_t>(0, kShares));

TEST(VerifyAttentionF64Test, EveryLine) { verify_all(workload("test_attention_f64.txt"), false); }

TEST_P(VerifyAttentionTest, EveryLineOfTheBackward) {
  const std::vector<Case> all = workload("test_attention_backward.txt");
  std::vector<Case> mine;
  for (std::size_t i = GetParam(); i < all.size(); i += kShares) mine.push_back(all[i]);
  verify_all(mine, false);
}

TEST(VerifyAttentionBackwardFillsTest, EveryFill) {
  Case c{.op = Op::attention_backward};
  for (const std::string_view text :
       {"2x4x33x64 f32 keys=70 kv_heads=2", "1x2x20x64 bf16 keys=70 causal softcap=5",
        "3x4x5x64 f16 keys=70 lengths sinks d_sinks", "1x2x9x24 f64 keys=300 mask=additive"}) {
    ASSERT_TRUE(parse_case(text, c).ok());
    verify_all({c}, true);
  }
}

TEST(VerifyAttentionWalkTest, EveryLine) { verify_all(workload("test_attention_walk.txt"), false); }

// One by one, as parts of the keys are easily left out of a selection.
TEST(VerifyAttentionPartsTest, EveryLineWithParts) {
  int found = 0;
  for (const Case& line : workload("test_attention.txt")) {
    if (line.split == 0 || is_long(line)) continue;
    verify_all({line}, false);
    ++found;
  }
  EXPECT_GT(found, 5);
}

TEST(VerifyAttentionFillsTest, EveryFill) {
  Case c{.op = Op::attention};
  for (const std::string_view text :
       {"2x4x33x64 f32 keys=70 lse", "1x2x20x64 bf16 keys=70 causal lse",
        "3x4x5x64 f16 kv_heads=2 page=16 keys=70 lengths lse",
        "1x2x9x64 f32 keys=300 split=64 mask=additive lse"}) {
    ASSERT_TRUE(parse_case(text, c).ok());
    verify_all({c}, true);
  }
}

struct Share {
  Op op;
  int index;
};

std::vector<Share> shares(int count) {
  std::vector<Share> all;
  for (const Op op : kRowOps) {
    for (int i = 0; i < count; ++i) all.push_back({op, i});
  }
  return all;
}

void PrintTo(const Share& share, std::ostream* out) {
  *out << name(share.op) << " " << share.index;
}

std::string share_name(const testing::TestParamInfo<Share>& info) {
  return std::string(name(info.param.op)) + "_" + std::to_string(info.param.index);
}

class RowOps : public testing::TestWithParam<Share> {};
class RowOpsSlow : public testing::TestWithParam<Share> {};
class RowOpsFills : public testing::TestWithParam<Share> {};

TEST_P(RowOps, AgreeWithTheOracle) {
  const auto lines = lines_of(row_ops(), GetParam().op, [](const Case& c) { return !is_long(c); });
  std::vector<Case> mine;
  for (std::size_t i = static_cast<std::size_t>(GetParam().index); i < lines.size(); i += kShares) {
    mine.push_back(lines[i]);
  }
  verify_all(mine, false);
}

TEST_P(RowOpsSlow, LongRowsAgreeWithTheOracle) {
  verify_all(lines_of(row_ops(), GetParam().op, is_long), false);
}

TEST_P(RowOpsFills, AgreeWithTheOracle) {
  verify_all(lines_of(fill_problems(), GetParam().op, [](const Case&) { return true; }), true);
}

INSTANTIATE_TEST_SUITE_P(Workload, RowOps, testing::ValuesIn(shares(kShares)), share_name);
INSTANTIATE_TEST_SUITE_P(Workload, RowOpsSlow, testing::ValuesIn(shares(1)), share_name);
INSTANTIATE_TEST_SUITE_P(Workload, RowOpsFills, testing::ValuesIn(shares(1)), share_name);

// What the lines must cover between them. A verifier is only as good as its list.

TEST(WorkloadCoverageSlow, EveryPairOfDtypesForEveryOp) {
  constexpr DType kFloating[] = {DType::f32, DType::f16, DType::bf16, DType::f64};
  std::set<std::tuple<Op, DType, DType>> found;
  for (const Case& c : row_ops()) found.insert({c.op, c.in, c.out});
  for (const Op op : kRowOps) {
    for (const DType in : kFloating) {
      for (const DType out : kFloating) {
        EXPECT_TRUE(found.contains({op, in, out}))
            << name(op) << " " << name(in) << ":" << name(out);
      }
    }
  }
}

TEST(WorkloadCoverageSlow, EveryOptionForEveryOp) {
  struct Option {
    std::string_view name;
    bool (*on)(const Case&);
    bool (*applies)(Op) = [](Op) { return true; };
  };
  constexpr auto writes_rows = [](Op op) { return traffic(op).writes > 0; };
  constexpr auto is_loss = [](Op op) {
    return op == Op::cross_entropy || op == Op::cross_entropy_backward;
  };
  constexpr auto has_lse = [](Op op) {
    return op == Op::softmax || op == Op::log_softmax || op == Op::cross_entropy ||
           op == Op::cross_entropy_backward;
  };
  const Option options[] = {
      {"scale", [](const Case& c) { return c.scale != 1; }},
      {"scale=row", [](const Case& c) { return c.scale_rows; }},
      {"temperature", [](const Case& c) { return c.temperature != 1; }},
      {"temperature=row", [](const Case& c) { return c.temperature_rows; }},
      {"softcap", [](const Case& c) { return c.softcap > 0; }},
      {"additive", [](const Case& c) { return c.additive; }},
      {"boolean", [](const Case& c) { return c.boolean; }},
      {"lengths", [](const Case& c) { return c.lengths; }},
      {"causal", [](const Case& c) { return c.causal; }},
      {"window_left", [](const Case& c) { return c.window_left >= 0; }},
      {"window_right", [](const Case& c) { return c.window_right >= 0; }},
      {"broadcast additive", [](const Case& c) { return c.broadcast && c.additive; }},
      {"broadcast boolean", [](const Case& c) { return c.broadcast && c.boolean; }},
      {"pad", [](const Case& c) { return c.pad > 0; }},
      {"step", [](const Case& c) { return c.step > 1; }},
      {"offset", [](const Case& c) { return c.offset > 0; }},
      {"first axis", [](const Case& c) { return c.shape.size() > 1 && c.axis_index() == 0; }},
      {"middle axis",
       [](const Case& c) {
         return c.axis_index() > 0 && c.axis_index() + 1 < static_cast<int>(c.shape.size());
       }},
      {"negative axis", [](const Case& c) { return c.axis < -1; }},
      {"one dimension", [](const Case& c) { return c.shape.size() == 1; }},
      {"zero rows", [](const Case& c) { return c.rows() == 0 && c.cols() > 0; }},
      {"zero cols", [](const Case& c) { return c.cols() == 0 && c.rows() > 0; }},
      {"one thread", [](const Case& c) { return c.threads == 1; }},
      {"two threads", [](const Case& c) { return c.threads == 2; }},
      {"three threads", [](const Case& c) { return c.threads == 3; }},
      {"in_place", [](const Case& c) { return c.in_place; }, writes_rows},
      {"lse", [](const Case& c) { return c.lse; }, has_lse},
      {"smoothing", [](const Case& c) { return c.smoothing > 0; }, is_loss},
      {"z_loss", [](const Case& c) { return c.z_loss > 0; }, is_loss},
      {"ignore", [](const Case& c) { return c.ignore; }, is_loss},
      {"weights", [](const Case& c) { return c.weights; }, is_loss},
      {"probabilities", [](const Case& c) { return c.probabilities; }, is_loss},
      {"sum", [](const Case& c) { return c.reduction == Reduction::sum; }, is_loss},
      {"mean", [](const Case& c) { return c.reduction == Reduction::mean; }, is_loss},
  };
  for (const Op op : kRowOps) {
    for (const Option& option : options) {
      if (!option.applies(op)) continue;
      EXPECT_FALSE(lines_of(row_ops(), op, option.on).empty()) << name(op) << " " << option.name;
    }
  }
}

TEST(WorkloadCoverageSlow, EveryVariantInEveryInstructionSet) {
  for (const auto* lines : {&row_ops(), &fill_problems()}) {
    std::set<std::tuple<Op, std::string, std::string>> found;
    for (const Case& line : *lines) {
      for (const Case& c : expand(line, false)) found.insert({c.op, c.variant, c.isa});
    }
    for (const Op op : kRowOps) {
      EXPECT_TRUE(found.contains({op, "", ""})) << name(op) << " as the dispatcher has it";
      for (const Variant& v : variants(op)) {
        if (v.device != Device::cpu) continue;
        for (const std::string& isa : runnable_isas()) {
          EXPECT_TRUE(found.contains({op, std::string(v.name), isa}))
              << name(op) << " " << v.name << " " << isa;
        }
      }
    }
  }
}

// cpu_split on a small problem has one piece and is cpu_row under another name.
TEST(WorkloadCoverageSlow, RowsAreReallyCut) {
  for (const auto* lines : {&row_ops(), &fill_problems()}) {
    for (const Op op : kRowOps) {
      std::set<int> pieces;
      for (const Case& line : *lines) {
        if (line.op != op || line.variant != "cpu_split") continue;
        Decision decision;
        const Status status =
            plan_variant("cpu_split", problem_of(line), this_host(line.threads), decision);
        ASSERT_TRUE(status.ok()) << to_string(line) << "\n    " << status.message();
        pieces.insert(std::get<CpuLaunch>(decision.launch).split);
      }
      EXPECT_TRUE(pieces.contains(3)) << name(op);
      EXPECT_FALSE(pieces.contains(1)) << name(op) << ": a line asks for pieces and gets none";
    }
  }
}

// The opposite of all the tests above: a result that is not what was asked for does not pass.
TEST(VerifyTest, AnUnknownVariantFillOrInstructionSetDoesNotPass) {
  for (const auto& [text, named] :
       {std::pair{"4x9 f32 variant=cpu_none", "'cpu_none'"},
        std::pair{"4x9 f32 fill=none", "'none'"}, std::pair{"4x9 f32 isa=none", "'none'"}}) {
    Case c;
    ASSERT_TRUE(parse_case(text, c).ok());
    const Verdict verdict = verify(c);
    EXPECT_EQ(verdict.kind, Verdict::Kind::failed) << text;
    EXPECT_NE(verdict.message.find(named), std::string::npos) << verdict.message;
  }
}

TEST(VerifyTest, ARefusalIsToldFromAPass) {
  Case c;
  ASSERT_TRUE(parse_case("softmax 4x513 f32 variant=cpu_short", c).ok());
  const Verdict verdict = verify(c);
  EXPECT_EQ(verdict.kind, Verdict::Kind::refused);
  EXPECT_NE(verdict.message.find("512"), std::string::npos) << verdict.message;
}

TEST(VerifyTest, TheForcedVariantIsTheOneThatRuns) {
  for (const Op op : kRowOps) {
    for (const Variant& v : variants(op)) {
      if (v.device != Device::cpu) continue;
      Case c{.op = op,
             .shape = {4, 9},
             .axis = v.name == "cpu_lanes" ? 0 : -1,
             .variant = std::string(v.name)};
      const Verdict verdict = verify(c);
      EXPECT_EQ(verdict.kind, Verdict::Kind::passed) << to_string(c) << "\n    " << verdict.message;
      EXPECT_EQ(verdict.variant, v.name);
    }
  }
}

}  // namespace
}  // namespace onepass::cli

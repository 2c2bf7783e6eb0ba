#include "dispatch/machines.hpp"
#include "rows/gpu/tuning.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "dispatch/choose.hpp"
#include "dispatch/tuning_file.hpp"

namespace onepass {
namespace {

using gpu_rows::Config;
using gpu_rows::Kernel;

const Machine& h200() { return *find_machine("h200"); }

Problem softmax_of(std::int64_t rows, std::int64_t cols, DType dtype = DType::f16) {
  return {.rows = rows, .cols = cols, .in = dtype, .out = dtype, .aligned_rows = true};
}

GpuTuning two_points() {
  GpuTuning tuning(90, 132);
  tuning.add({Family::map, 2, 512, 1, {Kernel::block, 2, 1}});
  tuning.add({Family::map, 2, 512, 4096, {Kernel::block, 8, 1}});
  return tuning;
}

TEST(GpuTuningTest, TextAndBack) {
  const GpuTuning tuning = two_points();
  EXPECT_EQ(tuning.text(),
            "onepass-tuning-1 90 132\nmap 2 512 1 gpu_block:2\nmap 2 512 4096 gpu_block:8\n");
  GpuTuning read;
  ASSERT_TRUE(GpuTuning::parse("# mine\n\n" + tuning.text(), read).ok());
  EXPECT_EQ(read, tuning);
}

TEST(GpuTuningTest, WhatIsNoTuningIsToldByItsLine) {
  const std::pair<std::string_view, std::string_view> bad[] = {
      {"", "onepass-tuning-1"},
      {"onepass-tuning-2 90 132\n", "line 1"},
      {"onepass-tuning-1 90\n", "line 1"},
      {"onepass-tuning-1 90 132\nmap 2 512 gpu_block:2\n", "line 2"},
      {"onepass-tuning-1 90 132\nzip 2 512 1 gpu_block:2\n", "line 2"},
      {"onepass-tuning-1 90 132\nmap 2 512 1 gpu_block:2 more\n", "line 2"},
      {"onepass-tuning-1 90 132\n\nmap 2 512 1 gpu_wide:2\n", "line 3: 'gpu_wide:2'"},
      {"onepass-tuning-1 90 132\nmap 2 512 1 flash_mma:2\n", "line 2: 'flash_mma:2'"},
      {"onepass-tuning-1 90 132\nmap 2 512 1 gpu_block:x\n", "line 2: 'gpu_block:x'"}};
  for (const auto& [text, part] : bad) {
    GpuTuning tuning = two_points();
    const Status status = GpuTuning::parse(text, tuning);
    EXPECT_EQ(status.code(), Code::invalid_argument) << text;
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
    EXPECT_EQ(tuning, two_points());  // nothing half-read
  }
}

// A number that a launch has not, or that none can have, is no name: not a division by zero later.
TEST(GpuTuningTest, NamesThatAreNoLaunch) {
  EXPECT_EQ(gpu_rows::config_named("gpu_cluster:4:8"), (Config{Kernel::block, 4, 8}));
  for (const std::string_view name :
       {"gpu_block", "gpu_block:", "gpu_block:0", "gpu_block:-2", "gpu_cluster:4:0",
        "gpu_cluster:4:-1", "gpu_cluster:4", "gpu_block:4:2", "gpu_group:4:2", "gpu_grid:4:16",
        "gpu_block:4x", "gpu_cluster:4:8:1", "gpu_block:99999999999", "online:4"}) {
    EXPECT_EQ(gpu_rows::config_named(name), std::nullopt) << name;
    Decision plan;
    const bool named = name.find(':') != std::string_view::npos;
    EXPECT_EQ(plan_variant(name, softmax_of(4, 4096), h200(), plan).ok(), !named) << name;
  }
}

TEST(GpuTuningTest, TheNearestPointThatFits) {
  const GpuTuning tuning = two_points();
  EXPECT_EQ(tuning.find(softmax_of(1, 4096), h200()), (Config{Kernel::block, 2, 1}));
  EXPECT_EQ(tuning.find(softmax_of(3, 4000), h200()), (Config{Kernel::block, 2, 1}));
  EXPECT_EQ(tuning.find(softmax_of(9999, 4096), h200()), (Config{Kernel::block, 8, 1}));
  EXPECT_EQ(tuning.find(softmax_of(4096, 4096, DType::f32), h200()), std::nullopt);  // other bytes
  EXPECT_EQ(tuning.find(softmax_of(4096, 64), h200()), std::nullopt);                // too far
  Problem with_options = softmax_of(1, 4096);
  with_options.plain = false;
  EXPECT_EQ(tuning.find(with_options, h200()), std::nullopt);
  Problem reduces = softmax_of(1, 4096);
  reduces.op = Op::logsumexp;
  EXPECT_EQ(tuning.find(reduces, h200()), std::nullopt);  // another family
}

TEST(GpuTuningTest, PointsComeInAnyOrder) {
  GpuTuning tuning(90, 132);
  tuning.add({Family::map, 4, 512, 1, {Kernel::block, 4, 1}});
  tuning.add({Family::map, 2, 512, 1, {Kernel::block, 2, 1}});
  tuning.add({Family::fold, 2, 512, 1, {Kernel::block, 4, 1}});
  tuning.add({Family::map, 2, 512, 4096, {Kernel::block, 8, 1}});
  EXPECT_EQ(tuning.find(softmax_of(1, 4096), h200()), (Config{Kernel::block, 2, 1}));
  EXPECT_EQ(tuning.find(softmax_of(4096, 4096), h200()), (Config{Kernel::block, 8, 1}));
  EXPECT_EQ(tuning.find(softmax_of(1, 2048, DType::f32), h200()), (Config{Kernel::block, 4, 1}));
}

// Rows of 512 packs lie as far from the one point as from the other.
TEST(GpuTuningTest, ALaunchForLongerRowsSuitsBetterThanOneForShorter) {
  GpuTuning tuning(90, 132);
  tuning.add({Family::map, 2, 256, 64, {Kernel::block, 2, 1}});
  tuning.add({Family::map, 2, 1024, 64, {Kernel::block, 4, 1}});
  EXPECT_EQ(tuning.find(softmax_of(64, 4096), h200()), (Config{Kernel::block, 4, 1}));
}

TEST(GpuTuningTest, TheDispatcherAsksIt) {
  const GpuTuning tuning = two_points();
  Machine machine = h200();
  machine.tuned = &tuning;
  const auto packs = [&](const Problem& p) {
    return std::get<gpu_rows::BlockLaunch>(choose(p, machine).launch).packs;
  };
  EXPECT_EQ(packs(softmax_of(1, 4096)), 2);
  EXPECT_EQ(packs(softmax_of(4096, 4096)), 8);
  Problem invariant = softmax_of(1, 4096);
  invariant.batch_invariant = true;
  EXPECT_EQ(packs(invariant), 8);  // as for many rows
}

// How a launch cuts a row: over lanes, or blocks and their threads, and into packs.
std::array<int, 4> cut_of(const Launch& launch) {
  if (const auto* group = std::get_if<gpu_rows::GroupLaunch>(&launch)) {
    return {group->row_threads, 0, group->packs, 0};
  }
  if (const auto* block = std::get_if<gpu_rows::BlockLaunch>(&launch)) {
    return {block->cluster, block->threads, block->packs, block->chunk};
  }
  const auto& grid = std::get<gpu_rows::GridLaunch>(launch);
  return {grid.split, grid.threads, grid.packs, grid.chunk};
}

// However many rows: the same kernel, the same cut.
TEST(GpuTuningTest, BatchInvariantPlansAgree) {
  for (const Machine& m : known_gpus()) {
    for (const std::int64_t cols : {7, 128, 1000, 4097, 50257, 300000, 4194304}) {
      Problem p = softmax_of(1, cols);
      p.batch_invariant = true;
      for (const bool plain : {true, false}) {
        p.plain = plain;
        p.rows = 1;
        const Decision one = choose(p, m);
        for (const std::int64_t rows : {2, 64, 1000, 100000}) {
          p.rows = rows;
          const Decision many = choose(p, m);
          EXPECT_EQ(many.variant(), one.variant());
          EXPECT_EQ(cut_of(many.launch), cut_of(one.launch)) << rows << " × " << cols;
        }
      }
    }
  }
}

TEST(GpuTuningTest, TheBuiltInTableIsOfThisMachineAndRuns) {
  const GpuTuning* table = built_in_tuning(h200());
  ASSERT_NE(table, nullptr);
  EXPECT_GT(table->points().size(), 50U);
  for (const GpuTuning::Point& point : table->points()) {
    const bool two = point.element_bytes == 2;
    Problem p = softmax_of(point.rows, point.packs * (two ? 8 : 4), two ? DType::f16 : DType::f32);
    p.op = point.family == Family::map    ? Op::softmax
           : point.family == Family::fold ? Op::logsumexp
                                          : Op::softmax_backward;
    EXPECT_TRUE(gpu_rows::fits(point.launch, p, h200())) << gpu_rows::name_of(point.launch);
    EXPECT_TRUE(table->find(p, h200()).has_value());
  }
  EXPECT_EQ(built_in_tuning(*find_machine("a100")), nullptr);
}

class UserTuningTest : public testing::Test {
 protected:
  void SetUp() override { setenv("ONEPASS_TUNING", path_.c_str(), 1); }
  void TearDown() override {
    unsetenv("ONEPASS_TUNING");
    std::filesystem::remove(path_);
  }
  void write(const std::string& text) const { std::ofstream(path_) << text; }

  std::string path_ = testing::TempDir() + "onepass_tuning_" + std::to_string(getpid());
};

TEST_F(UserTuningTest, AFileThatFits) {
  write(two_points().text());
  GpuTuning tuning;
  bool found = false;
  EXPECT_TRUE(user_tuning(h200(), tuning, found).ok());
  EXPECT_TRUE(found);
  EXPECT_EQ(tuning, two_points());
}

TEST_F(UserTuningTest, WhatCannotBeUsedIsToldAndIgnored) {
  GpuTuning tuning;
  bool found = true;
  Status status = user_tuning(h200(), tuning, found);  // there is none where one was named
  EXPECT_FALSE(found);
  EXPECT_NE(status.message().find(path_), std::string::npos);
  write("nonsense");
  status = user_tuning(h200(), tuning, found);
  EXPECT_FALSE(found);
  EXPECT_NE(status.message().find("line 1"), std::string::npos);
  write(two_points().text());
  status = user_tuning(*find_machine("a100"), tuning, found);  // of another GPU
  EXPECT_FALSE(found);
  EXPECT_NE(status.message().find("sm_90"), std::string::npos);
  EXPECT_NE(status.message().find("sm_80"), std::string::npos);
  EXPECT_EQ(tuning, GpuTuning());
}

TEST(UserTuningPathTest, TheConfigFolder) {
  unsetenv("ONEPASS_TUNING");
  setenv("XDG_CONFIG_HOME", "/config", 1);
  EXPECT_EQ(user_tuning_path(), "/config/onepass/tuning.txt");
  unsetenv("XDG_CONFIG_HOME");
  GpuTuning tuning;
  bool found = true;
  setenv("XDG_CONFIG_HOME", "/nowhere", 1);
  EXPECT_TRUE(user_tuning(h200(), tuning, found).ok());  // nobody asked for one
  EXPECT_FALSE(found);
  unsetenv("XDG_CONFIG_HOME");
}

}  // namespace
}  // namespace onepass

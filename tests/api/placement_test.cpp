// Wherever the data lies, whoever calls, in how little memory.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/number.hpp"
#include "core/problem.hpp"
#include "dispatch/variant.hpp"
#include "onepass/onepass.hpp"
#include "oracle/oracle.hpp"
#include "tests/support/values.hpp"

namespace onepass {
namespace {

using namespace test;

// ---- Where the data may lie, and who may call -------------------------------------------------

TEST(PlacementTest, SeveralHostThreadsAtOnce) {
  constexpr int callers = 8, calls = 50;
  std::vector<std::string> wrong(callers);
  std::vector<std::thread> threads;
  for (int caller = 0; caller < callers; ++caller) {
    threads.emplace_back([caller, &wrong] {
      // Different shapes, so that scratch memory of different sizes is asked for all the time.
      const std::int64_t rows = 1 + caller % 3, cols = 20000 + 1000 * caller;
      const Values x(DType::f32, {rows, cols},
                     numbers(rows * cols, static_cast<std::uint64_t>(caller)));
      std::vector<double> expected;
      for (std::int64_t r = 0; r < rows; ++r) {
        oracle::Row row;
        for (std::int64_t c = 0; c < cols; ++c) row.push_back(x.get(r * cols + c));
        for (const double weight : oracle::softmax(row)) expected.push_back(weight);
      }
      for (int call = 0; call < calls && wrong[static_cast<std::size_t>(caller)].empty(); ++call) {
        Values y(DType::f32, {rows, cols});
        const Status status = forward(Op::softmax, Context::cpu(1 + call % 3), x, y,
                                      {.variant = call % 2 == 0 ? "cpu_split" : "cpu_row"});
        std::string& message = wrong[static_cast<std::size_t>(caller)];
        if (!status.ok()) message = status.message();
        for (std::int64_t i = 0; i < rows * cols && message.empty(); ++i) {
          const double e = expected[static_cast<std::size_t>(i)];
          if (!(std::abs(y.get(i) - e) <= 1e-6 * e + 1e-37)) {
            message = "call " + std::to_string(call) + ", element " + std::to_string(i) + ": " +
                      std::to_string(y.get(i)) + " is not " + std::to_string(e);
          }
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& message : wrong) EXPECT_EQ(message, "");
}

// x and y as views of one array; what is in neither keeps its value.
void expect_views_work(std::vector<std::int64_t> shape, std::vector<std::int64_t> strides,
                       std::int64_t x_offset, std::int64_t y_offset, std::int64_t elements) {
  std::vector<float> memory(static_cast<std::size_t>(elements), 77.0F);
  const auto at = [&](std::int64_t offset, std::int64_t r, std::int64_t c) -> float& {
    return memory[static_cast<std::size_t>(offset + r * strides[0] + c * strides[1])];
  };
  const std::vector<double> values = numbers(shape[0] * shape[1]);
  Values dense(DType::f32, shape), expected(DType::f32, shape);
  for (std::int64_t i = 0; i < shape[0] * shape[1]; ++i) {
    dense.set(i, values[static_cast<std::size_t>(i)]);
    at(x_offset, i / shape[1], i % shape[1]) =
        static_cast<float>(values[static_cast<std::size_t>(i)]);
  }
  ASSERT_TRUE(forward(Op::softmax, Context::cpu(1), dense, expected).ok());
  const Status status =
      softmax(Context::cpu(1), Tensor(memory.data() + x_offset, DType::f32, shape, strides),
              Tensor(memory.data() + y_offset, DType::f32, shape, strides));
  ASSERT_TRUE(status.ok()) << status.message();
  std::int64_t others = elements - 2 * shape[0] * shape[1];
  for (const float v : memory) others -= v == 77.0F ? 1 : 0;
  EXPECT_EQ(others, 0) << "elements beside x and y were written";
  for (std::int64_t i = 0; i < shape[0] * shape[1]; ++i) {
    EXPECT_EQ(at(x_offset, i / shape[1], i % shape[1]), dense.get(i)) << "x, " << i;
    EXPECT_NEAR(at(y_offset, i / shape[1], i % shape[1]), expected.get(i), 5e-7) << "y, " << i;
  }
}

TEST(PlacementTest, InterleavedWindowsOfOneArray) {
  expect_views_work({4, 9}, {18, 1}, 0, 9, 4 * 18);     // halves of wide rows
  expect_views_work({4, 9}, {25, 1}, 14, 2, 4 * 25);    // with space between, y before x
  expect_views_work({4, 9}, {18, 2}, 0, 1, 4 * 18);     // even and odd columns
  expect_views_work({4, 9}, {1, 8}, 0, 4, 9 * 8);       // halves of columns: rows in lanes
  expect_views_work({4, 9}, {-20, 1}, 60, 70, 4 * 20);  // rows from the bottom up
  expect_views_work({4, 9}, {20, -1}, 8, 18, 4 * 20);   // columns from the right
}

// Address space, of which only the pages that are touched cost memory.
class Wide {
 public:
  explicit Wide(std::size_t bytes)
      : size_(bytes),
        data_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  Wide(const Wide&) = delete;
  Wide& operator=(const Wide&) = delete;
  ~Wide() {
    if (present()) ::munmap(data_, size_);
  }
  bool present() const { return data_ != MAP_FAILED; }
  BF16* at(std::int64_t element) const { return static_cast<BF16*>(data_) + element; }

 private:
  std::size_t size_;
  void* data_;
};

TEST(PlacementTest, StridesPastThirtyTwoBits) {
  constexpr std::int64_t far = (std::int64_t{1} << 31) + 5, cols = 20;
  const Wide memory(static_cast<std::size_t>(far + 1000) * sizeof(BF16));
  if (!memory.present()) GTEST_SKIP() << "no 4 GiB of address space";
  const std::vector<double> values = numbers(2 * cols);
  Values expected(DType::bf16, {2, cols}), expected_lse(DType::f32, {2});
  ASSERT_TRUE(
      forward(Op::softmax, Context::cpu(1), Values(DType::bf16, {2, cols}, values), expected).ok());
  ASSERT_TRUE(
      forward(Op::logsumexp, Context::cpu(1), Values(DType::bf16, {2, cols}, values), expected_lse)
          .ok());
  // As rows far apart, as the same from the last row up, and along an axis that is not the last.
  struct View {
    std::int64_t x, y, row_stride, col_stride;
    int axis;
  };
  for (const View& view :
       {View{0, 500, far, 1, 1}, View{far, far + 500, -far, 1, 1}, View{0, 500, far, 2, 1}}) {
    for (const Variant& v : variants(Op::softmax)) {
      if (v.device != Device::cpu) continue;
      SCOPED_TRACE(v.name);
      for (std::int64_t i = 0; i < 2 * cols; ++i) {
        const std::int64_t at = i / cols * view.row_stride + i % cols * view.col_stride;
        *memory.at(view.x + at) = to_bf16(static_cast<float>(values[static_cast<std::size_t>(i)]));
        *memory.at(view.y + at) = BF16{0xFFFF};
      }
      const Tensor x(memory.at(view.x), DType::bf16, {2, cols}, {view.row_stride, view.col_stride});
      const Tensor y(memory.at(view.y), DType::bf16, {2, cols}, {view.row_stride, view.col_stride});
      const Status status = softmax(Context::cpu(1), x, y, {.variant = v.name});
      if (status.code() == Code::unsupported) continue;
      ASSERT_TRUE(status.ok()) << status.message();
      for (std::int64_t i = 0; i < 2 * cols; ++i) {
        const std::int64_t at = i / cols * view.row_stride + i % cols * view.col_stride;
        EXPECT_NEAR(to_float(*memory.at(view.y + at)), expected.get(i), expected.get(i) * 0x1p-7)
            << i;
      }
      Values lse(DType::f32, {2});
      ASSERT_TRUE(logsumexp(Context::cpu(1), x, lse.tensor()).ok());
      EXPECT_NEAR(lse.get(0), expected_lse.get(0), 1e-5);
      EXPECT_NEAR(lse.get(1), expected_lse.get(1), 1e-5);
    }
  }
}

TEST(PlacementTest, ColumnsPastThirtyTwoBits) {
  constexpr std::int64_t far = (std::int64_t{1} << 31) + 5, rows = 20;
  const Wide memory(static_cast<std::size_t>(far + 1000) * sizeof(BF16));
  if (!memory.present()) GTEST_SKIP() << "no 4 GiB of address space";
  for (const std::string_view variant : {"cpu_serial", "cpu_row", "cpu_split", "cpu_lanes"}) {
    SCOPED_TRACE(variant);
    for (std::int64_t r = 0; r < rows; ++r) {
      *memory.at(r) = to_bf16(0.5F);
      *memory.at(far + r) = to_bf16(static_cast<float>(r) - 8);
    }
    const Tensor x(memory.at(0), DType::bf16, {2, rows}, {far, 1});
    const Tensor y(memory.at(500), DType::bf16, {2, rows}, {far, 1});
    const Status status = softmax(Context::cpu(1), x, y, {.axis = 0, .variant = variant});
    ASSERT_TRUE(status.ok()) << status.message();
    for (std::int64_t r = 0; r < rows; ++r) {
      const double first = 1 / (1 + std::exp(static_cast<double>(r) - 8.5));
      EXPECT_NEAR(to_float(*memory.at(500 + r)), first, first * 0x1p-7) << r;
      EXPECT_NEAR(to_float(*memory.at(far + 500 + r)), 1 - first, (1 - first) * 0x1p-7) << r;
    }
  }
}

// ---- Memory -----------------------------------------------------------------------------------

// A line of /proc/self/status, in bytes.
std::int64_t memory_status(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key + ":")) return std::stoll(line.substr(key.size() + 1)) << 10;
  }
  return -1;
}

// How far the process grows while body runs; nothing where Linux does not tell.
std::optional<std::int64_t> growth(const std::function<void()>& body) {
  { std::ofstream("/proc/self/clear_refs") << "5"; }  // the high-water mark falls to what is in use
  const std::int64_t before = memory_status("VmRSS");
  if (before < 0 || memory_status("VmHWM") > before + (1 << 20)) return std::nullopt;
  body();
  return memory_status("VmHWM") - before;
}

TEST(PlacementSlow, ExtraMemoryIsAtMostOneRowAThread) {
  constexpr std::int64_t rows = 4, cols = 1 << 20;
  // A row, and what else a first call touches: stacks, pages of code, the maxima of tiles.
  constexpr std::int64_t allowed = cols * 4 + (1 << 20);
  std::vector<float> x(rows * cols), y(rows * cols), dx(rows * cols), per_row(rows), lse(rows);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 7919 % 1000) / 100;
  const std::vector<std::int32_t> target(rows, 3);
  const std::vector<std::int64_t> shape = {rows, cols};
  const ConstTensor in(x.data(), DType::f32, shape);
  const Tensor out(y.data(), DType::f32, shape), gradient(dx.data(), DType::f32, shape);
  const Tensor each(per_row.data(), DType::f32, {rows}), sums(lse.data(), DType::f32, {rows});
  const ConstTensor classes(target.data(), DType::i32, {rows});
  for (const int threads : {1, 2}) {
    const Context context = Context::cpu(threads);
    const auto check = [&](Op op, std::string_view variant, const std::function<Status()>& call) {
      Status status;
      const auto grown = growth([&] { status = call(); });
      if (!grown) GTEST_SKIP() << "no high-water mark to be had";
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_LT(*grown, threads * allowed) << name(op) << " " << variant << ", " << threads;
    };
    for (const std::string_view v : {"cpu_row", "cpu_split"}) {
      check(Op::softmax, v, [&] { return softmax(context, in, out, {.lse = sums, .variant = v}); });
      check(Op::log_softmax, v, [&] { return log_softmax(context, in, gradient, {.variant = v}); });
      check(Op::logsumexp, v, [&] { return logsumexp(context, in, each, {.variant = v}); });
      check(Op::softmax_backward, v,
            [&] { return softmax_backward(context, out, in, gradient, {.variant = v}); });
      check(Op::log_softmax_backward, v,
            [&] { return log_softmax_backward(context, out, in, gradient, {.variant = v}); });
      check(Op::cross_entropy, v,
            [&] { return cross_entropy(context, in, classes, each, {.variant = v}); });
      check(Op::cross_entropy_backward, v, [&] {
        return cross_entropy_backward(context, in, classes, {}, each, gradient, {.variant = v});
      });
    }
  }
}

// The yardstick itself: memory that is touched shows.
TEST(PlacementSlow, MemoryThatIsTouchedShows) {
  const auto grown = growth([] {
    const std::vector<char> touched(16 << 20, 1);
    EXPECT_EQ(touched[5], 1);
  });
  if (!grown) GTEST_SKIP() << "no high-water mark to be had";
  EXPECT_GE(*grown, 8 << 20);
}

}  // namespace
}  // namespace onepass

// A process that used several threads and then forks, as data loaders and pre-forking servers do.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "onepass/onepass.hpp"

namespace onepass {
namespace {

constexpr std::int64_t kCols = 1 << 20;

// The softmax of one row on two threads.
std::vector<float> on_two_threads() {
  std::vector<float> x(kCols), y(kCols);
  for (std::int64_t c = 0; c < kCols; ++c)
    x[static_cast<std::size_t>(c)] = static_cast<float>(c % 17);
  Plan plan;
  const Status status = softmax(Context::cpu(2), ConstTensor(x.data(), DType::f32, {1, kCols}),
                                Tensor(y.data(), DType::f32, {1, kCols}), {.plan = &plan});
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(plan.threads, 2);
  return y;
}

// The exit status of a child that runs body; a child that hangs is ended by its alarm.
template <class Body>
int in_child(const Body& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(body() ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST(ForkTest, AChildHasThreadsOfItsOwn) {
  const std::vector<float> expected = on_two_threads();
  EXPECT_EQ(in_child([&] { return on_two_threads() == expected && on_two_threads() == expected; }),
            0);
  EXPECT_EQ(on_two_threads(), expected);
}

TEST(ForkTest, SoHasAChildOfAChild) {
  const std::vector<float> expected = on_two_threads();
  EXPECT_EQ(in_child([&] {
              if (on_two_threads() != expected) return false;
              return in_child([&] { return on_two_threads() == expected; }) == 0;
            }),
            0);
}

}  // namespace
}  // namespace onepass

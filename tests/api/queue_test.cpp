// Which kernels may begin before the one before them has ended.
// Not under sanitizers: plans are pure functions.
#include <gtest/gtest.h>

#include "api/execute.hpp"

namespace onepass {
namespace {

Machine compiled_for(int sm) {
  Machine machine{};
  machine.gpu.sm = sm;
  return machine;
}

TEST(QueueTest, OnlyKernelsThatWaitMayBeginEarly) {
  const Context context = Context::cuda(nullptr);
  EXPECT_FALSE(queue_of(context, compiled_for(80)).early);
  EXPECT_FALSE(queue_of(context, compiled_for(89)).early);  // which has no such instruction
  EXPECT_TRUE(queue_of(context, compiled_for(90)).early);
  EXPECT_TRUE(queue_of(context, compiled_for(100)).early);
}

TEST(QueueTest, TheCallersStream) {
  int stream = 0;
  EXPECT_EQ(queue_of(Context::cuda(&stream), compiled_for(90)).stream, &stream);
}

}  // namespace
}  // namespace onepass

// Bad options: each is refused with its name and value, and no output is touched.
#include <gtest/gtest.h>

#include <cstdlib>

#include "dispatch/variant.hpp"
#include "onepass/onepass.hpp"
#include "tests/api/good_call.hpp"
#include "tests/support/values.hpp"

namespace onepass {
namespace {

using namespace test;

// ---- Masks ------------------------------------------------------------------------------------

TEST(BadInputTest, MaskOfTheWrongShape) {
  static const float zeros[100] = {};
  static const std::uint8_t keep[100] = {};
  static const std::int32_t counts[100] = {};
  const std::vector<std::vector<std::int64_t>> wrong = {
      {kRows, kCols + 1}, {kRows - 1, kCols}, {kRows}, {2, kRows, kCols}, {1, 1, 1}};
  for_each_op([&](Call& call) {
    for (const auto& shape : wrong) {
      const ConstTensor additive_mask(zeros, DType::f32, shape);
      call.mask = additive(additive_mask);
      call.refused({"mask.additive", shape_text(additive_mask), "[3, 4]"});
      const ConstTensor boolean_mask(keep, DType::u8, shape);
      call.mask = boolean(boolean_mask);
      call.refused({"mask.boolean", shape_text(boolean_mask), "[3, 4]"});
    }
    for (const std::vector<std::int64_t>& shape :
         {std::vector<std::int64_t>{kCols}, {kRows, kCols}, {kRows, 2}, {2, kRows}}) {
      const ConstTensor lengths_mask(counts, DType::i32, shape);
      call.mask = lengths(lengths_mask);
      call.refused({"mask.lengths", shape_text(lengths_mask), "[3]"});
    }
  });
}

TEST(BadInputTest, MaskOfTheWrongDtype) {
  static const double memory[16] = {};
  for_each_op([](Call& call) {
    for (const DType dtype : {DType::u8, DType::i32, DType::i64}) {
      call.mask = additive({memory, dtype, {kRows, kCols}});
      call.refused({"mask.additive", "dtype", name(dtype)});
    }
    for (const DType dtype : {DType::f32, DType::i32, DType::f16}) {
      call.mask = boolean({memory, dtype, {kRows, kCols}});
      call.refused({"mask.boolean", "dtype", name(dtype)});
    }
    for (const DType dtype : {DType::f32, DType::u8, DType::f64}) {
      call.mask = lengths({memory, dtype, {kRows}});
      call.refused({"mask.lengths", "dtype", name(dtype)});
    }
  });
}

TEST(BadInputTest, MaskOfBadMemory) {
  for_each_op([](Call& call) {
    call.mask = additive({nullptr, DType::f32, {kRows, kCols}});
    call.refused({"mask.additive", "null pointer"});
    call.mask = boolean({nullptr, DType::u8, {kRows, kCols}});
    call.refused({"mask.boolean", "null pointer"});
    call.mask = lengths({nullptr, DType::i64, {kRows}});
    call.refused({"mask.lengths", "null pointer"});
    call.mask =
        lengths({reinterpret_cast<const std::byte*>(call.target_data) + 1, DType::i32, {kRows}});
    call.refused({"mask.lengths", "aligned", "i32"});
  });
}

TEST(BadInputTest, LengthOutOfRange) {
  for_each_op([](Call& call) {
    for (const auto& [length, text] : {std::pair{-1, "-1"}, std::pair{5, "5"}}) {
      const std::int32_t narrow[] = {4, length, 0};
      call.mask = lengths({narrow, DType::i32, {kRows}});
      call.refused({"mask.lengths", text, "row 1", "between 0 and 4"});
      const std::int64_t wide[] = {0, 4, length};
      call.mask = lengths({wide, DType::i64, {kRows}});
      call.refused({"mask.lengths", text, "row 2"});
    }
  });
}

TEST(BadInputTest, WindowThatIsNoDistance) {
  for_each_op([](Call& call) {
    call.mask = window(-2, 3);
    call.refused({"mask.window_left", "-2"});
    call.mask = window(3, -2);
    call.refused({"mask.window_right", "-2"});
  });
}

// ---- Numbers ----------------------------------------------------------------------------------

TEST(BadInputTest, TemperatureThatIsNotAPositiveNumber) {
  for (const auto& [value, text] : {std::pair{kNan, "nan"}, std::pair{0.0, "0"},
                                    std::pair{-1.5, "-1.5"}, std::pair{kInf, "inf"}}) {
    for_each_op([&, value = value, text = text](Call& call) {
      call.temperature = value;
      call.refused({"temperature", text});
      const float each[] = {1, static_cast<float>(value), 1};
      call.temperature = ConstTensor(each, DType::f32, {kRows});
      call.refused({"temperature", text, "row 1"});
    });
  }
}

TEST(BadInputTest, ScaleThatIsNotFinite) {
  for (const auto& [value, text] :
       {std::pair{kNan, "nan"}, std::pair{kInf, "inf"}, std::pair{-kInf, "-inf"}}) {
    for_each_op([&, value = value, text = text](Call& call) {
      call.scale = value;
      call.refused({"scale", text});
      const double each[] = {1, 1, value};
      call.scale = ConstTensor(each, DType::f64, {kRows});
      call.refused({"scale", text, "row 2"});
    });
  }
}

TEST(BadInputTest, PerRowTensorsThatDoNotFit) {
  const double memory[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  for_each_op([&](Call& call) {
    call.scale = ConstTensor(memory, DType::f64, {kCols});
    call.refused({"scale", "[4]", "[3]"});
    call.scale = ConstTensor(memory, DType::i64, {kRows});
    call.refused({"scale", "dtype", "i64"});
    call.scale = 1.0;
    call.temperature = ConstTensor(memory, DType::f64, {kRows, kCols});
    call.refused({"temperature", "[3, 4]", "[3]"});
    call.temperature = ConstTensor(nullptr, DType::f32, {kRows});
    call.refused({"temperature", "null pointer"});
  });
}

TEST(BadInputTest, SoftcapThatIsNotZeroOrPositive) {
  for (const auto& [value, text] :
       {std::pair{kNan, "nan"}, std::pair{-2.5, "-2.5"}, std::pair{kInf, "inf"}}) {
    for_each_op([&, value = value, text = text](Call& call) {
      call.softcap = value;
      call.x = call.in;
      call.refused({"softcap", text});
    });
  }
}

TEST(BadInputTest, AGradientThroughASoftcapNeedsX) {
  for (const Op op : {Op::softmax_backward, Op::log_softmax_backward}) {
    Call call(op);
    call.softcap = 12.5;
    call.refused({"x", "missing", "12.5"});
    call.x = ConstTensor(call.first_data, DType::f32, {kRows, 2});
    call.refused({"x", "[3, 2]"});
    call.x = ConstTensor(nullptr, DType::f32, {kRows, kCols});
    call.refused({"x", "null pointer"});
    call.x = ConstTensor(call.first_data, DType::i32, {kRows, kCols});
    call.refused({"x", "dtype", "i32"});
  }
}

TEST(BadInputTest, LossOptionsOutOfRange) {
  for (const Op op : {Op::cross_entropy, Op::cross_entropy_backward}) {
    for (const auto& [value, text] :
         {std::pair{-0.125, "-0.125"}, std::pair{1.5, "1.5"}, std::pair{kNan, "nan"}}) {
      Call call(op);
      call.label_smoothing = value;
      call.refused({"label_smoothing", text});
    }
    for (const auto& [value, text] : {std::pair{kNan, "nan"}, std::pair{kInf, "inf"}}) {
      Call call(op);
      call.z_loss = value;
      call.refused({"z_loss", text});
    }
  }
}

TEST(BadInputTest, TargetOutOfRange) {
  for (const Op op : {Op::cross_entropy, Op::cross_entropy_backward}) {
    for (const auto& [target, text] : {std::pair{4, "4"}, std::pair{-1, "-1"},
                                       std::pair{-100, "-100"}, std::pair{1 << 30, "1073741824"}}) {
      Call call(op);
      call.ignore_index = -7;
      call.target_data[1] = target;
      call.refused({"target", text, "row 1", "below 4", "-7"});
      call.ignore_index = target;
      call.accepted();
    }
  }
}

TEST(BadInputTest, AxisOutOfRange) {
  for_each_op([](Call& call) {
    for (const auto& [axis, text] : {std::pair{2, "2"}, std::pair{-3, "-3"}}) {
      call.axis = axis;
      call.refused({"axis", text, "2 dimensions"});
    }
  });
}

// ---- Who runs it ------------------------------------------------------------------------------

TEST(BadInputTest, NegativeThreads) {
  for_each_op([](Call& call) {
    call.context = Context::cpu(-3);
    call.refused({"threads", "-3"});
  });
}

TEST(BadInputTest, AVariantThatDoesNotExist) {
  for_each_op([](Call& call) {
    call.variant = "cpu_fastest";
    call.refused({"variant", "'cpu_fastest'", name(call.op)});
    for (const Variant& v : variants(call.op)) call.refused({v.name});
  });
  Call other(Op::logsumexp);  // a name, but not one of this op's
  other.variant = "cpu_short";
  other.refused({"variant", "logsumexp", "'cpu_short'"});
}

TEST(BadInputTest, AVariantThatDoesNotExistIsRefusedOfNothingToo) {
  for_each_op([](Call& call) {
    call.variant = "cpu_fastest";
    call.lse = {};
    call.in = ConstTensor(call.first_data, DType::f32, {0, kCols});
    call.second = is_loss(call.op) ? ConstTensor(call.target_data, DType::i32, {0})
                                   : ConstTensor(call.second_data, DType::f32, {0, kCols});
    call.dloss = ConstTensor(call.dloss_data, DType::f32, {0});
    call.out = traffic(call.op).writes > 0 ? Tensor(call.written, DType::f32, {0, kCols})
                                           : Tensor(call.written, DType::f32, {0});
    call.refused({"variant", "'cpu_fastest'"});
    if (!is_loss(call.op)) return;
    call.reduction = Reduction::mean;
    call.dloss = ConstTensor(call.dloss_data, DType::f32, {});
    if (call.op == Op::cross_entropy) call.out = Tensor(call.written, DType::f32, {});
    call.refused({"variant", "'cpu_fastest'"});
  });
}

TEST(BadInputTest, AVariantThatCannotRunThis) {
  Call masked(Op::softmax);
  masked.lse = {};
  masked.variant = "cpu_short";
  masked.mask = causal();
  masked.refused({"variant", "cpu_short", "mask"}, Code::unsupported);
  masked.mask = {};
  masked.temperature = 2.0;
  masked.refused({"variant", "cpu_short", "temperature"}, Code::unsupported);
  masked.temperature = 1.0;
  masked.accepted();

  Call inner(Op::log_softmax);
  inner.lse = {};
  inner.variant = "cpu_lanes";
  inner.refused({"variant", "cpu_lanes"}, Code::unsupported);
  inner.axis = 0;
  inner.accepted();
}

TEST(BadInputTest, AnLseWhereThereIsNone) {
  Call twice(Op::logsumexp);
  twice.lse = Tensor(twice.written + 512, DType::f32, {kRows});
  twice.refused({"lse", "y"});
  Call backward(Op::cross_entropy_backward);
  backward.lse = Tensor(backward.written + 512, DType::f32, {kRows});
  backward.refused({"lse", "output"});
}

TEST(BadInputTest, AKnownLseThatDoesNotFit) {
  Call call(Op::cross_entropy_backward);
  call.known_lse = ConstTensor(call.dloss_data, DType::f32, {kRows + 1});
  call.refused({"lse", "[4]", "[3]"});
  call.known_lse = ConstTensor(call.dloss_data, DType::i32, {kRows});
  call.refused({"lse", "dtype", "i32"});
  call.known_lse = ConstTensor(nullptr, DType::f32, {kRows});
  call.refused({"lse", "null pointer"});
}

TEST(BadInputTest, TheWordsForCodes) {
  EXPECT_EQ(name(Code::ok), "ok");
  EXPECT_EQ(name(Code::invalid_argument), "invalid argument");
  EXPECT_EQ(name(Code::unsupported), "unsupported");
  EXPECT_EQ(name(Code::out_of_memory), "out of memory");
  EXPECT_EQ(name(Code::internal), "internal error");
  EXPECT_TRUE(Status().ok());
  EXPECT_EQ(Status().message(), "");
}

}  // namespace
}  // namespace onepass

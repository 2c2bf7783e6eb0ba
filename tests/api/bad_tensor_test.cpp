// Bad tensors, one alone or two that share memory: each is refused with its name and value, and no
// output is touched.
#include <gtest/gtest.h>

#include <cstdlib>

#include "dispatch/variant.hpp"
#include "onepass/onepass.hpp"
#include "tests/api/good_call.hpp"
#include "tests/support/values.hpp"

namespace onepass {
namespace {

using namespace test;

constexpr std::int64_t kBig = std::int64_t{1} << 40;

TEST(BadInputTest, TheCallsAreGoodToBeginWith) {
  for_each_op([](Call& call) { call.accepted(); });
}

// ---- One tensor -------------------------------------------------------------------------------

TEST(BadInputTest, MissingTensor) {
  for_each_slot([](Call& call, const Slot& slot) {
    if (slot.name == "lse") return;
    slot.change([](auto& t) { t = {}; });
    call.refused({slot.name, "missing"});
  });
}

TEST(BadInputTest, NullPointer) {
  for_each_slot([](Call& call, const Slot& slot) {
    std::string shape;
    slot.change([&](auto& t) {
      t.data = nullptr;
      shape = shape_text(t);
    });
    call.refused({slot.name, "null pointer", shape});
  });
}

TEST(BadInputTest, NegativeShape) {
  for_each_slot([](Call& call, const Slot& slot) {
    slot.change([](auto& t) { t.shape[0] = -3; });
    call.refused({slot.name, "-3", "dimension 0"});
  });
}

TEST(BadInputTest, OverflowingShape) {
  for_each_slot([](Call& call, const Slot& slot) {
    slot.change([](auto& t) { t = {t.data, t.dtype, {kBig, kBig}}; });
    call.refused({slot.name, "[1099511627776, 1099511627776]"});
  });
  // Elements that can be counted, bytes that cannot.
  for_each_slot([](Call& call, const Slot& slot) {
    slot.change([](auto& t) { t = {t.data, t.dtype, {kBig, 1 << 22}}; });
    call.refused({slot.name, "[1099511627776, 4194304]"});
  });
  for_each_slot([](Call& call, const Slot& slot) {
    slot.change([](auto& t) { t.strides[0] = std::numeric_limits<std::int64_t>::max(); });
    call.refused({slot.name, "stride 9223372036854775807", "dimension 0"});
  });
  for_each_slot([](Call& call, const Slot& slot) {
    slot.change([](auto& t) { t.strides[0] = std::numeric_limits<std::int64_t>::min(); });
    call.refused({slot.name, "stride -9223372036854775808", "dimension 0"});
  });
}

TEST(BadInputTest, TooManyDimensions) {
  for_each_slot([](Call& call, const Slot& slot) {
    slot.change([](auto& t) { t = {t.data, t.dtype, {1, 1, 1, 1, 1, 1, 1, 1, 1}}; });
    call.refused({slot.name, "8 dimensions"});
  });
}

TEST(BadInputTest, StridesThatDoNotMatchTheShape) {
  for_each_slot([](Call& call, const Slot& slot) {
    slot.change([](auto& t) { t = {t.data, t.dtype, {kRows, kCols}, {kCols, 1, 1}}; });
    call.refused({slot.name, "strides"});
  });
}

TEST(BadInputTest, StrideSmallerThanTheRow) {
  for_each_slot([](Call& call, const Slot& slot) {
    slot.change([](auto& t) {
      if (t.rank == 2) t.strides[0] = kCols - 1;
    });
    ConstTensor changed;
    slot.change([&](auto& t) { changed = t; });
    if (changed.rank == 2) call.refused({slot.name, "stride 3", "4 elements"});
  });
}

TEST(BadInputTest, AnOutputThatWritesOneElementTwice) {
  for_each_slot([](Call& call, const Slot& slot) {
    if (slot.out == nullptr) return;
    slot.out->strides[0] = 0;
    call.refused({slot.name, "stride 0"});
  });
}

TEST(BadInputTest, MisalignedPointer) {
  for_each_slot([](Call& call, const Slot& slot) {
    if (slot.in != nullptr) slot.in->data = static_cast<const std::byte*>(slot.in->data) + 1;
    if (slot.out != nullptr) slot.out->data = static_cast<std::byte*>(slot.out->data) + 1;
    std::string dtype;
    slot.change([&](auto& t) { dtype = name(t.dtype); });
    call.refused({slot.name, "aligned", dtype});
  });
}

TEST(BadInputTest, DtypeThatTheOpDoesNotTake) {
  for_each_slot([](Call& call, const Slot& slot) {
    if (slot.name == "target") return;
    for (const DType dtype : {DType::i32, DType::u8, DType::i64}) {
      slot.change([&](auto& t) { t.dtype = dtype; });
      call.refused({slot.name, "dtype", name(dtype)});
    }
  });
  for (const Op op : {Op::cross_entropy, Op::cross_entropy_backward}) {
    for (const DType dtype : {DType::f32, DType::u8, DType::f64}) {
      Call call(op);
      call.second.dtype = dtype;
      call.refused({"target", "dtype", name(dtype)});
    }
  }
  for (const DType dtype : {DType::f16, DType::bf16}) {  // too narrow for what it is for
    Call call(Op::softmax);
    call.lse.dtype = dtype;
    call.refused({"lse", "dtype", name(dtype)});
  }
}

TEST(BadInputTest, ADtypeThatIsNone) {
  for_each_slot([](Call& call, const Slot& slot) {
    slot.change([](auto& t) { t.dtype = static_cast<DType>(99); });
    call.refused({slot.name, "dtype"});
  });
}

TEST(BadInputTest, ShapesThatDoNotBelongTogether) {
  for_each_slot([](Call& call, const Slot& slot) {
    if (slot.name == call.in_name()) return;  // the others are held against it
    slot.change([](auto& t) {
      t = t.rank == 2 ? std::decay_t<decltype(t)>(t.data, t.dtype, {kRows, kCols + 1})
                      : std::decay_t<decltype(t)>(t.data, t.dtype, {kRows + 1});
    });
    ConstTensor changed;
    slot.change([&](auto& t) { changed = t; });
    call.refused({slot.name, shape_text(changed), changed.rank == 2 ? "[3, 4]" : "[3]"});
  });
}

TEST(BadInputTest, AReducedLossIsOneElement) {
  for (const Reduction reduction : {Reduction::sum, Reduction::mean}) {
    for (const Op op : {Op::cross_entropy, Op::cross_entropy_backward}) {
      Call call(op);
      call.reduction = reduction;
      call.refused({op == Op::cross_entropy ? "loss" : "dloss", "[3]", "one element"});
    }
  }
}

// ---- Memory that is shared --------------------------------------------------------------------

TEST(BadInputTest, AnOutputThatOverlapsAnInput) {
  for_each_op([](Call& call) {
    for (const Slot& slot : call.slots()) {
      if (slot.in == nullptr) continue;
      const ConstTensor before = *slot.in;
      *slot.in = ConstTensor(call.written + 4, before.dtype,
                             std::span(before.shape.data(), static_cast<std::size_t>(before.rank)));
      call.refused({call.out_name(), "overlaps", slot.name});
      *slot.in = before;
    }
  });
}

TEST(BadInputTest, AResultOfOneARowCannotBeInPlace) {
  for (const Op op : {Op::logsumexp, Op::cross_entropy}) {
    Call call(op);
    call.in.data = call.written;
    call.refused({call.out_name(), "overlaps", "x"});
  }
}

TEST(BadInputTest, InPlaceWithAnotherDtypeOrLayout) {
  for (const Op op : kRowOps) {
    if (traffic(op).writes == 0) continue;
    for (const DType dtype : {DType::f16, DType::bf16, DType::f64}) {
      Call call(op);
      call.in = ConstTensor(call.written, dtype, {kRows, kCols});
      call.refused({"overlaps", call.in_name(), "dtype"});
    }
    Call call(op);
    call.in = ConstTensor(call.written, DType::f32, {kRows, kCols}, {1, kRows});  // transposed
    call.refused({call.out_name(), "overlaps", call.in_name()});
    call.in = ConstTensor(call.written, DType::f32, {kRows, kCols}, {kCols + 1, 1});
    call.refused({call.out_name(), "overlaps", call.in_name()});
  }
}

TEST(BadInputTest, AnLseThatOverlaps) {
  Call over_y(Op::softmax);
  over_y.lse.data = over_y.written + 8;
  over_y.refused({"lse", "overlaps", "y"});
  Call over_x(Op::log_softmax);
  over_x.lse.data = over_x.first_data;
  over_x.refused({"lse", "overlaps", "x"});
  EXPECT_EQ(over_x.first_data[0], 0.25F);
}

TEST(BadInputTest, AnOptionThatOverlapsTheOutput) {
  for_each_op([](Call& call) {
    const ConstTensor full(call.written, DType::f32, {kRows, kCols});
    const ConstTensor each(call.written, DType::f32, {kRows});
    call.mask.additive = full;
    call.refused({call.out_name(), "overlaps", "mask.additive"});
    call.mask = boolean(ConstTensor(call.written, DType::u8, {kRows, kCols}));
    call.refused({call.out_name(), "overlaps", "mask.boolean"});
    call.mask = lengths(ConstTensor(call.written, DType::i32, {kRows}));
    call.refused({call.out_name(), "overlaps", "mask.lengths"});
    call.mask = {};
    call.scale = each;
    call.refused({call.out_name(), "overlaps", "scale"});
    call.scale = 1.0;
    call.temperature = each;
    call.refused({call.out_name(), "overlaps", "temperature"});
  });
}

}  // namespace
}  // namespace onepass

// Bad input: each is refused with its name and value, and no output is touched.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "dispatch/variant.hpp"
#include "onepass/onepass.hpp"
#include "tests/support/values.hpp"

namespace onepass {
namespace {

using namespace test;

constexpr std::int64_t kRows = 3, kCols = 4;
constexpr std::int64_t kBig = std::int64_t{1} << 40;
constexpr std::byte kPattern{0xA5};

bool is_backward(Op op) { return op == Op::softmax_backward || op == Op::log_softmax_backward; }
bool is_loss(Op op) { return op == Op::cross_entropy || op == Op::cross_entropy_backward; }

// One tensor argument of a call, by the name that errors give it.
struct Slot {
  std::string_view name;
  ConstTensor* in = nullptr;
  Tensor* out = nullptr;

  template <class Change>
  void change(Change change) const {
    in != nullptr ? change(*in) : change(*out);
  }
};

// A call of any op that is right in everything, until a test makes one thing wrong.
struct Call {
  explicit Call(Op which) : op(which) {
    std::memset(written, static_cast<int>(kPattern), sizeof written);
    for (std::size_t i = 0; i < kRows * kCols; ++i) first_data[i] = second_data[i] = 0.25F;
    out = traffic(op).writes == 0 ? Tensor(written, DType::f32, {kRows})
                                  : Tensor(written, DType::f32, {kRows, kCols});
    if (op == Op::logsumexp || op == Op::cross_entropy_backward || is_backward(op)) lse = {};
    if (is_loss(op)) second = ConstTensor(target_data, DType::i32, {kRows});
  }

  std::string_view in_name() const { return is_backward(op) ? "y" : "x"; }
  std::string_view out_name() const {
    return op == Op::cross_entropy                               ? "loss"
           : is_backward(op) || op == Op::cross_entropy_backward ? "dx"
                                                                 : "y";
  }

  // Every tensor that the op takes as an argument, options aside.
  std::vector<Slot> slots() {
    std::vector<Slot> all = {{.name = in_name(), .in = &in}, {.name = out_name(), .out = &out}};
    if (is_backward(op)) all.push_back({.name = "dy", .in = &second});
    if (is_loss(op)) all.push_back({.name = "target", .in = &second});
    if (op == Op::cross_entropy_backward) all.push_back({.name = "dloss", .in = &dloss});
    if (lse.present()) all.push_back({.name = "lse", .out = &lse});
    return all;
  }

  template <class Options>
  Options filled(Options options) const {
    options.axis = axis;
    options.scale = scale;
    options.temperature = temperature;
    options.softcap = softcap;
    options.mask = mask;
    options.variant = variant;
    return options;
  }

  Status run() const {
    if (is_backward(op)) {
      BackwardOptions options = filled(BackwardOptions{});
      options.x = x;
      return op == Op::softmax_backward ? softmax_backward(context, in, second, out, options)
                                        : log_softmax_backward(context, in, second, out, options);
    }
    if (is_loss(op)) {
      CrossEntropyOptions options = filled(CrossEntropyOptions{});
      options.ignore_index = ignore_index;
      options.label_smoothing = label_smoothing;
      options.z_loss = z_loss;
      options.reduction = reduction;
      options.lse = lse;
      return op == Op::cross_entropy
                 ? cross_entropy(context, in, second, out, options)
                 : cross_entropy_backward(context, in, second, known_lse, dloss, out, options);
    }
    SoftmaxOptions options = filled(SoftmaxOptions{});
    options.lse = lse;
    return op == Op::softmax       ? softmax(context, in, out, options)
           : op == Op::log_softmax ? log_softmax(context, in, out, options)
                                   : logsumexp(context, in, out, options);
  }

  // Refused, for the reason given in all these words, and nothing was written.
  void refused(std::initializer_list<std::string_view> words,
               Code code = Code::invalid_argument) const {
    SCOPED_TRACE(name(op));
    const Status status = run();
    EXPECT_EQ(name(status.code()), name(code)) << status.message();
    for (const std::string_view word : words) {
      EXPECT_NE(status.message().find(word), std::string::npos)
          << "'" << word << "' is not in: " << status.message();
    }
    for (const std::byte b : written) ASSERT_EQ(b, kPattern) << "the output was written";
  }

  void accepted() const {
    SCOPED_TRACE(name(op));
    const Status status = run();
    EXPECT_TRUE(status.ok()) << status.message();
  }

  alignas(64) float first_data[kRows * kCols], second_data[kRows * kCols];
  std::int32_t target_data[kRows] = {0, 1, 2};
  float dloss_data[kRows] = {1, 1, 1};
  alignas(64) std::byte written[1024];  // the output, then the lse, with room around them

  Op op;
  Context context = Context::cpu(1);
  ConstTensor in{first_data, DType::f32, {kRows, kCols}};
  ConstTensor second{second_data, DType::f32, {kRows, kCols}};
  ConstTensor x{}, known_lse{};
  ConstTensor dloss{dloss_data, DType::f32, {kRows}};
  Tensor out;
  Tensor lse{written + 512, DType::f32, {kRows}};
  int axis = -1;
  PerRow scale = 1.0, temperature = 1.0;
  double softcap = 0;
  Mask mask{};
  std::string_view variant;
  std::int64_t ignore_index = -100;
  double label_smoothing = 0, z_loss = 0;
  Reduction reduction = Reduction::none;
};

// Calls body with a fresh, good call of every op.
void for_each_op(const std::function<void(Call&)>& body) {
  for (const Op op : kRowOps) {
    Call call(op);
    body(call);
  }
}

// And for every tensor argument of every op.
void for_each_slot(const std::function<void(Call&, const Slot&)>& body) {
  for (const Op op : kRowOps) {
    for (std::size_t i = 0; i < Call(op).slots().size(); ++i) {
      Call call(op);
      body(call, call.slots()[i]);
    }
  }
}

std::string shape_text(const ConstTensor& t) {
  std::string text = "[";
  for (int i = 0; i < t.rank; ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(t.shape[static_cast<std::size_t>(i)]);
  }
  return text + "]";
}

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

#include "cli/ops/call.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cli/gpu/apparatus.hpp"
#include "cli/problem/fill.hpp"
#include "oracle/oracle.hpp"

namespace onepass::cli {
namespace {

bool is_backward(Op op) { return op == Op::softmax_backward || op == Op::log_softmax_backward; }

bool is_loss(Op op) { return op == Op::cross_entropy || op == Op::cross_entropy_backward; }

// Above this many elements a block of values is repeated: timing needs no more.
constexpr std::int64_t kDistinct = 1 << 20;

}  // namespace

std::int64_t Call::index(std::int64_t r, std::int64_t c) const {
  return r / inner_ * case_.cols() * inner_ + c * inner_ + r % inner_;
}

Status Call::make(const Case& wanted) {
  case_ = wanted;
  inner_ = 1;
  for (std::size_t i = static_cast<std::size_t>(case_.axis_index()) + 1; i < case_.shape.size();
       ++i) {
    inner_ *= case_.shape[i];
  }
  if (find_fill(case_.fill) == nullptr) {
    return {Code::invalid_argument, fmt::format("fill: there is no '{}'", case_.fill)};
  }
  if (case_.loss && case_.op != Op::cross_entropy_backward) {
    return {Code::invalid_argument, "loss: only cross_entropy_backward can give it beside dx"};
  }
  if ((case_.weights || case_.probabilities) && !is_loss(case_.op)) {
    return {Code::invalid_argument,
            fmt::format("{}: {} has none", case_.weights ? "weights" : "probabilities",
                        name(case_.op))};
  }
  if (case_.probabilities && case_.ignore) {
    return {Code::invalid_argument, "ignore: no row of probabilities is ignored"};
  }
  if (chooses(case_.op) &&
      (case_.in_place || case_.axis_index() + 1 != static_cast<std::int64_t>(case_.shape.size()))) {
    return {Code::invalid_argument,
            fmt::format("{}: the row is the last dimension, and is not written", name(case_.op))};
  }
  if (case_.in_place && case_.in != case_.out) {
    return {Code::invalid_argument, "in_place: needs one dtype for input and output"};
  }
  if (case_.rows() > (std::int64_t{1} << 32)) {
    return {Code::out_of_memory, fmt::format("{} rows are more than can be checked", case_.rows())};
  }
  Random random(case_.seed);
  if (case_.op == Op::attention) {
    const Status status = make_attention(random);
    return status.ok() ? to_device() : status;
  }
  if (Status status = make_options(random); !status.ok()) return status;
  if (Status status = make_inputs(random); !status.ok()) return status;
  return to_device();
}

Status Call::to_device() {
  if (case_.device == Device::cpu) return {};
  for (GuardedArray* array : arrays()) {
    if (Status status = array->mirror(); !status.ok()) return status;
  }
  return {};
}

std::span<const Call::Member> Call::members() {
  static constexpr Member all[] = {{"x", &Call::in_},
                                   {"dy", &Call::dy_},
                                   {"forward x", &Call::x_},
                                   {"y", &Call::out_},
                                   {"lse", &Call::lse_},
                                   {"loss", &Call::loss_},
                                   {"target", &Call::target_},
                                   {"weight", &Call::weight_},
                                   {"dloss", &Call::dloss_},
                                   {"scale", &Call::scale_},
                                   {"temperature", &Call::temperature_},
                                   {"mask.additive", &Call::additive_},
                                   {"mask.boolean", &Call::boolean_},
                                   {"mask.lengths", &Call::lengths_},
                                   {"indices", &Call::indices_},
                                   {"logprob", &Call::logprob_},
                                   {"rank", &Call::rank_},
                                   {"valid", &Call::valid_},
                                   {"bias", &Call::bias_},
                                   {"seed", &Call::seeds_},
                                   {"k", &Call::k_},
                                   {"v", &Call::v_},
                                   {"alibi", &Call::alibi_},
                                   {"sinks", &Call::sinks_},
                                   {"q_offsets", &Call::q_offsets_},
                                   {"kv_offsets", &Call::kv_offsets_},
                                   {"pages", &Call::pages_}};
  return all;
}

std::vector<GuardedArray*> Call::arrays() {
  std::vector<GuardedArray*> present;
  for (const Member& member : members()) {
    if ((*this)[member].present()) present.push_back(&(*this)[member]);
  }
  return present;
}

bool Call::writes(const Member& member) const {
  const GuardedArray* array = &(*this)[member];
  if (array == &out()) return true;
  if (array == &lse_) return writes_lse(case_);
  return array == &loss_ || array == &indices_ || array == &logprob_ || array == &rank_ ||
         array == &valid_;
}

std::vector<GuardedArray*> Call::written() {
  std::vector<GuardedArray*> outputs;
  for (const Member& member : members()) {
    if ((*this)[member].present() && writes(member)) outputs.push_back(&(*this)[member]);
  }
  return outputs;
}

Status Call::make_like(const Call& other) {
  case_ = other.case_;
  inner_ = other.inner_;
  const auto copy = [&](GuardedArray Call::*array) {
    return (other.*array).present() ? (this->*array).make_like(other.*array) : Status{};
  };
  for (const Member& member : members()) {
    if (Status status = copy(member.array); !status.ok()) return status;
  }
  if (Status status = copy(&Call::pristine_); !status.ok()) return status;
  return to_device();
}

Status Call::make_options(Random& random) {
  const std::vector<std::int64_t> row_shape = case_.row_shape();
  const std::int64_t rows = case_.rows();
  std::vector<std::int64_t> mask_shape = case_.shape;
  if (case_.broadcast) {
    std::fill(mask_shape.begin(), mask_shape.end(), 1);
    mask_shape[static_cast<std::size_t>(case_.axis_index())] = case_.cols();
  }
  const DType wide = case_.in == DType::f64 ? DType::f64 : DType::f32;
  Status status;
  const auto make = [&](bool wanted, GuardedArray& array, DType dtype, const auto& shape,
                        auto value) {
    if (!wanted || !status.ok()) return;
    status = array.make(dtype, shape);
    for (std::int64_t i = 0; status.ok() && i < array.size(); ++i) array.set(i, value(i));
  };
  make(case_.scale_rows, scale_, wide, row_shape,
       [&](std::int64_t) { return 0.5 + random.uniform(); });
  make(case_.temperature_rows, temperature_, wide, row_shape,
       [&](std::int64_t) { return 0.5 + random.uniform(); });
  make(case_.additive, additive_, case_.in, mask_shape, [&](std::int64_t) {
    return random.uniform() < 0.1 ? -std::numeric_limits<double>::infinity() : random.normal();
  });
  make(case_.boolean, boolean_, DType::u8, mask_shape,
       [&](std::int64_t) { return random.uniform() < 0.7 ? 1.0 : 0.0; });
  make(case_.lengths, lengths_, DType::i32, row_shape, [&](std::int64_t i) {
    if (i == 0) return 0.0;
    return i + 1 == rows ? static_cast<double>(case_.cols())
                         : std::floor(random.uniform() * static_cast<double>(case_.cols() + 1));
  });
  return status;
}

Status Call::make_inputs(Random& random) {
  const Layout layout{.pad = case_.pad, .step = case_.step, .offset = case_.offset};
  Layout out_layout = layout;
  if (case_.out_offset >= 0) out_layout.offset = case_.out_offset;
  const std::vector<std::int64_t> row_shape = case_.row_shape();
  const std::vector<std::int64_t> one = {};
  const std::vector<std::int64_t>& loss_shape =
      case_.reduction == Reduction::none ? row_shape : one;
  const Op op = case_.op;
  Status status;
  const auto make = [&](GuardedArray& array, DType dtype, const auto& shape, Layout how) {
    if (status.ok()) status = array.make(dtype, shape, how);
  };
  make(in_, case_.in, case_.shape, layout);
  if (is_backward(op)) {
    make(x_, case_.in, case_.shape, layout);
    make(dy_, case_.in, case_.shape, layout);
  }
  const bool per_row = op == Op::logsumexp || op == Op::cross_entropy;
  if (chooses(op)) {
    if (status.ok()) status = make_chosen(random);
  } else if (!case_.in_place) {
    make(out_, case_.out,
         op == Op::cross_entropy ? loss_shape
         : per_row               ? row_shape
                                 : case_.shape,
         per_row ? Layout{} : out_layout);
  }
  const DType wide = case_.in == DType::f64 ? DType::f64 : DType::f32;
  if (case_.lse) make(lse_, wide, row_shape, {});
  if (case_.probabilities) {
    make(target_, case_.in, case_.shape, layout);
  } else if (is_loss(op) || case_.target) {
    make(target_, DType::i64, row_shape, {});
  }
  if (case_.weights) make(weight_, wide, std::vector<std::int64_t>{case_.cols()}, {});
  if (op == Op::cross_entropy_backward) make(case_.loss ? loss_ : dloss_, wide, loss_shape, {});
  if (!status.ok()) return status;

  const Fill& fill = *find_fill(case_.fill);
  const std::int64_t rows = case_.rows();
  const std::int64_t cols = case_.cols();
  GuardedArray& x = is_backward(op) ? x_ : in_;
  const double limit = largest(case_.in);
  if (x.size() > kDistinct && case_.fill == "random" && x.bytes() >= kDistinct * 8 &&
      !is_backward(op) && case_.pad == 0 && case_.step == 1) {
    auto* data = static_cast<std::byte*>(x.tensor().data);
    const std::size_t width = size_of(case_.in);
    for (std::int64_t i = 0; i < kDistinct; ++i) x.set(i, 3 * random.normal());
    for (std::int64_t i = kDistinct; i < x.size(); i += kDistinct) {
      const auto count = static_cast<std::size_t>(std::min(kDistinct, x.size() - i)) * width;
      std::copy_n(data, count, data + static_cast<std::size_t>(i) * width);
    }
  } else {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < cols; ++c) {
        x.set(index(r, c), fill.value(r, c, cols, random.normal(), limit));
      }
    }
  }
  for (std::int64_t i = 0; i < dy_.size(); ++i) dy_.set(i, random.normal());
  fill_targets(random);
  for (std::int64_t i = 0; i < dloss_.size(); ++i) dloss_.set(i, 0.5 + random.uniform());

  const bool takes_lse = op == Op::cross_entropy_backward && case_.lse && !case_.loss;
  const bool needs_forward = is_backward(op) || takes_lse;
  for (std::int64_t r = 0; needs_forward && r < rows; ++r) {
    oracle::Row row(static_cast<std::size_t>(cols));
    for (std::int64_t c = 0; c < cols; ++c) row[static_cast<std::size_t>(c)] = x.get(index(r, c));
    const oracle::Row z = oracle::logits(row, transform(r));
    if (!is_backward(op)) {
      lse_.set(r, oracle::logsumexp(z));
      continue;
    }
    const oracle::Row y = op == Op::softmax_backward ? oracle::softmax(z) : oracle::log_softmax(z);
    for (std::int64_t c = 0; c < cols; ++c) in_.set(index(r, c), y[static_cast<std::size_t>(c)]);
  }
  if (case_.in_place) {
    status = pristine_.make(case_.in, case_.shape, layout);
    if (status.ok()) pristine_.copy_from(in_place_target());
  }
  return status;
}

void Call::fill_targets(Random& random) {
  const std::int64_t cols = case_.cols();
  for (std::int64_t c = 0; c < weight_.size(); ++c) {
    weight_.set(c, c % 7 == 3 ? 0.0 : 0.25 + random.uniform());
  }
  if (!case_.probabilities) {
    for (std::int64_t r = 0; r < target_.size(); ++r) {
      const auto target = static_cast<std::int64_t>(random.uniform() * static_cast<double>(cols));
      const bool ignored = (case_.ignore && r % 4 == 1) || cols == 0;
      target_.set(r, static_cast<double>(ignored ? kIgnore : target));
    }
    return;
  }
  // Where a class is hidden it has no probability, or the loss is infinite: in one row of five
  // that is seen to.
  for (std::int64_t r = 0; r < case_.rows(); ++r) {
    const oracle::Transform t = transform(r);
    for (std::int64_t c = 0; c < cols; ++c) {
      const auto at = static_cast<std::size_t>(c);
      const bool hidden =
          (!t.keep.empty() && !t.keep[at]) || (!t.additive.empty() && std::isinf(t.additive[at]));
      const double q = random.uniform() * 2 / static_cast<double>(cols);
      target_.set(index(r, c), (hidden && r % 5 != 4) || c % 3 == 1 ? 0.0 : q);
    }
  }
}

Status Call::reset() {
  for (GuardedArray* array : written()) {
    if (case_.in_place && array == &in_place_target()) {
      array->copy_from(pristine_);
    } else {
      array->poison();
    }
  }
  if (case_.device == Device::cpu) return {};
  for (GuardedArray* array : written()) {
    if (Status status = array->upload(); !status.ok()) return status;
  }
  std::vector<std::span<std::byte>> all;
  for (const GuardedArray* array : arrays()) all.push_back(array->bytes_on_gpu());
  return gpu::arrive_late(all);
}

Status Call::fetch() {
  if (case_.device == Device::cpu) return {};
  if (Status status = gpu::synchronize(); !status.ok()) return status;
  for (GuardedArray* array : written()) {
    if (Status status = array->download(); !status.ok()) return status;
  }
  return {};
}

oracle::Transform Call::transform(std::int64_t r) const {
  const std::int64_t cols = case_.cols();
  const std::int64_t queries = case_.shape.size() < 2 ? 1 : case_.row_shape().back();
  oracle::Transform t{
      .scale = scale_.present() ? scale_.get(r) : case_.scale,
      .temperature = temperature_.present() ? temperature_.get(r) : case_.temperature,
      .softcap = case_.softcap};
  const auto masked = [&](const GuardedArray& a, std::int64_t c) {
    return a.get(case_.broadcast ? c : index(r, c));
  };
  const bool hides = boolean_.present() || lengths_.present() || case_.causal ||
                     case_.window_left >= 0 || case_.window_right >= 0;
  for (std::int64_t c = 0; c < cols; ++c) {
    if (additive_.present()) t.additive.push_back(masked(additive_, c));
    if (!hides) continue;
    const std::int64_t q = queries == 0 ? 0 : r % queries;
    t.keep.push_back(
        (!boolean_.present() || masked(boolean_, c) != 0) &&
        (!lengths_.present() || static_cast<double>(c) < lengths_.get(r)) &&
        (!case_.causal || oracle::causal_keeps(q, c, queries, cols)) &&
        oracle::window_keeps(q, c, queries, cols, case_.window_left, case_.window_right));
  }
  return t;
}

Mask Call::mask() const {
  Mask mask;
  if (additive_.present()) mask.additive = view(additive_);
  if (boolean_.present()) mask.boolean = view(boolean_);
  if (lengths_.present()) mask.lengths = view(lengths_);
  mask.causal = case_.causal;
  mask.window_left = case_.window_left;
  mask.window_right = case_.window_right;
  return mask;
}

Status Call::run(const Context& context, std::string_view variant, Plan* plan) {
  if (chooses(case_.op)) return run_chosen(context, variant, plan);
  if (case_.op == Op::attention) return run_attention(context, variant, plan);
  const auto fill_common = [&](auto options) {
    options.axis = case_.axis;
    if (scale_.present()) {
      options.scale = view(scale_);
    } else {
      options.scale = case_.scale;
    }
    if (temperature_.present()) {
      options.temperature = view(temperature_);
    } else {
      options.temperature = case_.temperature;
    }
    options.softcap = case_.softcap;
    options.mask = mask();
    options.variant = variant;
    options.plan = plan;
    options.batch_invariant = case_.batch_invariant;
    return options;
  };
  const Tensor in = view(in_);
  const Tensor out = view(this->out());
  if (is_backward(case_.op)) {
    BackwardOptions options = fill_common(BackwardOptions{});
    if (case_.softcap > 0) options.x = view(x_);
    return case_.op == Op::softmax_backward
               ? softmax_backward(context, in, view(dy_), out, options)
               : log_softmax_backward(context, in, view(dy_), out, options);
  }
  if (is_loss(case_.op)) {
    CrossEntropyOptions options = fill_common(CrossEntropyOptions{});
    options.ignore_index = kIgnore;
    if (weight_.present()) options.weight = view(weight_);
    options.label_smoothing = case_.smoothing;
    options.z_loss = case_.z_loss;
    options.reduction = case_.reduction;
    if (case_.loss) {
      options.lse = view(lse_);
      return cross_entropy_with_gradient(context, in, view(target_), view(loss_), out, options);
    }
    if (case_.op == Op::cross_entropy_backward) {
      return cross_entropy_backward(context, in, view(target_), view(lse_), view(dloss_), out,
                                    options);
    }
    options.lse = view(lse_);
    return cross_entropy(context, in, view(target_), out, options);
  }
  SoftmaxOptions options = fill_common(SoftmaxOptions{});
  options.lse = view(lse_);
  switch (case_.op) {
    case Op::softmax: return softmax(context, in, out, options);
    case Op::log_softmax: return log_softmax(context, in, out, options);
    default: return logsumexp(context, in, out, options);
  }
}

}  // namespace onepass::cli

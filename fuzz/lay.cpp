#include <algorithm>
#include <numeric>

#include "cli/problem/sequences.hpp"
#include "fuzz/arguments.hpp"
#include "fuzz/target.hpp"

namespace onepass::fuzz {
namespace {

using Extents = std::vector<std::int64_t>;

// What an op asks of a tensor's layout.
struct Rules {
  bool written = false;
  bool broadcasts = false;  // any dimension may be 1, and leading ones left out
  int dense = 0;            // so many of the last dimensions have stride 1
  int kept_axis = -1;       // one value per row: the axis may be there, with extent 1
};

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

Rules rules_of(std::string_view name, const cli::Call& call) {
  const cli::Case& c = call.spec();
  Rules rules;
  if (attends(c.op)) {
    const bool dense = is_one_of(name, {"x", "y", "k", "v", "o", "d_o", "d_k", "d_v",
                                        "mask.lengths", "q_offsets", "kv_offsets", "pages"});
    rules.dense = dense ? 1 : 0;
    rules.broadcasts = is_one_of(name, {"mask.additive", "mask.boolean"});
    return rules;
  }
  const bool per_row =
      is_one_of(name, {"lse", "loss", "target", "dloss", "scale", "temperature", "mask.lengths",
                       "logprob", "rank", "valid", "seed"}) ||
      (name == "y" && (c.op == Op::logsumexp || c.op == Op::cross_entropy || c.op == Op::sample));
  const bool reduced = c.reduction != Reduction::none && is_one_of(name, {"loss", "dloss", "y"});
  if (per_row && !reduced) rules.kept_axis = static_cast<int>(c.axis_index());
  rules.broadcasts = is_one_of(
      name, {"mask.additive", "mask.boolean", "mask.lengths", "scale", "temperature", "seed"});
  return rules;
}

// Dtypes that hold what the call's own array does, or that its values may be rounded to.
DType decode_dtype(Bytes& bytes, std::string_view name, DType own, const cli::Case& c) {
  if (!bytes.one_in(4)) return own;
  if (is_one_of(name,
                {"target", "mask.lengths", "indices", "rank", "seed", "q_offsets", "kv_offsets"})) {
    return bytes.one_in(2) ? DType::i32 : DType::i64;
  }
  if (name == "y" && c.op == Op::sample) return bytes.one_in(2) ? DType::i32 : DType::i64;
  if (is_one_of(name, {"lse", "loss", "logprob", "d_lse", "d_sinks", "d_additive"}))
    return bytes.one_in(2) ? DType::f64 : own;
  // A computation in float64 is none in float32: dy's type is part of what is computed.
  if (name == "dy" || is_one_of(name, {"x", "forward x", "y", "k", "v"})) return own;
  if (is_one_of(name, {"dloss", "scale", "temperature", "mask.additive", "alibi", "sinks", "bias",
                       "o", "d_o"})) {
    const DType wide = size_of(own) == 8 ? DType::f64 : DType::f32;
    return bytes.pick({own, wide, DType::f64, size_of(own) > 2 ? DType::f16 : own,
                       size_of(own) > 2 ? DType::bf16 : own});
  }
  return own;
}

// Makes all elements along some dimensions those of the first.
void repeat(cli::GuardedArray& array, const std::vector<bool>& along) {
  const Tensor& t = array.tensor();
  for (std::int64_t i = 0; i < array.size(); ++i) {
    std::int64_t from = 0, rest = i, step = 1;
    for (int d = t.rank - 1; d >= 0; --d) {
      const auto at = static_cast<std::size_t>(d);
      if (!along[at]) from += rest % t.shape[at] * step;
      step *= t.shape[at];
      rest /= t.shape[at];
    }
    array.set(i, array.get(from));
  }
}

// Inputs with which rows may be the same ones again.
bool may_repeat(std::string_view name, const cli::Case& c) {
  // What lies past a sequence's length is NaN, and in another's sight it need only weigh 0
  // (docs/numerics.md).
  if (name == "v" && c.lengths && device == Device::cuda) return false;
  if (name == "k" && c.lengths && device == Device::cuda && c.op == Op::attention_backward)
    return false;
  if (attends(c.op)) {
    return is_one_of(
        name, {"x", "k", "v", "mask.additive", "mask.boolean", "alibi", "sinks", "d_o", "d_lse"});
  }
  return !is_one_of(name, {"bias", "lse"});  // an lse follows from its logits
}

class Laying {
 public:
  Laying(Bytes& bytes, cli::Call& call, Arguments& out) : bytes_(bytes), call_(call), out_(out) {}

  Status run() {
    options();
    for (const cli::array::Id id : cli::kAllArrays) {
      if (!call_[id].present()) continue;
      if (Status status = lay(name(id), call_[id], call_.writes(id)); !status.ok()) return status;
    }
    if (attends(call_.spec().op) || call_.spec().op == Op::gate) return {};
    if (Status status = number("scale", out_.options.scale); !status.ok()) return status;
    if (Status status = number("temperature", out_.options.temperature); !status.ok())
      return status;
    if (call_.spec().op != Op::sample) return {};
    if (Status status = number("top_p", out_.options.top_p); !status.ok()) return status;
    if (Status status = number("min_p", out_.options.min_p); !status.ok()) return status;
    if (Status status = integer("top_k", out_.options.top_k); !status.ok()) return status;
    return integer("offset", out_.options.offset);
  }

 private:
  void options() {
    const cli::Case& c = call_.spec();
    Options& o = out_.options;
    o.axis = c.axis;
    o.scale = c.scale;
    o.temperature = c.temperature;
    o.softcap = c.softcap;
    o.smoothing = c.smoothing;
    o.z_loss = c.z_loss;
    o.top_p = c.top_p;
    o.min_p = c.min_p;
    o.top_k = c.top_k;
    o.window_left = c.window_left;
    o.window_right = c.window_right;
    o.causal = c.causal;
    o.split = c.split;
    o.variant = c.variant;
    if (bytes_.one_in(4)) o.offset = static_cast<std::int64_t>(bytes_.bits(8));
    o.check_pages = bytes_.one_in(2);
    o.logits_only = c.values == TopkValues::logit && bytes_.one_in(2);  // topk()
    const bool usual = attends(c.op) && c.scale == cli::usual_scale(c);
    if (bytes_.one_in(2) || !usual) o.attention_scale = c.scale;
    if (bytes_.one_in(4)) choose_ignore_index();
    if (c.op == Op::attention_backward) o.deterministic = !bytes_.one_in(2);
  }

  // Another ignore_index: a class even, whose rows then do not count.
  void choose_ignore_index() {
    cli::GuardedArray& target = call_[cli::array::target];
    if (call_.spec().op != Op::cross_entropy && call_.spec().op != Op::cross_entropy_backward)
      return;
    const std::int64_t ignored =
        bytes_.pick({std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 30});
    for (std::int64_t r = 0; r < target.size(); ++r) {
      if (target.get(r) == static_cast<double>(ignored))
        target.set(r, static_cast<double>(cli::kIgnore));
    }
    out_.options.ignore_index = ignored;
  }

  Status lay(std::string_view name, cli::GuardedArray& meant, bool written) {
    const cli::Case& c = call_.spec();
    const Rules rules = rules_of(name, call_);
    const Tensor& own = meant.tensor();
    const auto rank = static_cast<std::size_t>(own.rank);
    // Dimensions along which values are the same: extent 1 where the op broadcasts, else stride 0.
    std::vector<bool> same(rank, false), gone(rank, false);
    bool any = false;
    for (std::size_t d = 0; d < rank && !written && may_repeat(name, c) && bytes_.one_in(8); ++d) {
      same[d] = d + static_cast<std::size_t>(rules.dense) < rank && bytes_.one_in(2);
      any = any || same[d];
      gone[d] = same[d] && rules.broadcasts && bytes_.one_in(2);
    }
    if (any) repeat(meant, same);
    const bool as_mask = name == "d_additive";  // of the shape that the mask was given
    if (as_mask) gone = mask_gone_;

    Extents shape, steps(rank, 0);
    std::vector<bool> repeated;
    std::vector<std::size_t> from;  // the own dimension of each, or `rank`
    const auto add = [&](std::int64_t extent, bool repeats, std::size_t own_dimension) {
      shape.push_back(extent);
      repeated.push_back(repeats);
      from.push_back(own_dimension);
    };
    const bool keeps = rules.kept_axis >= 0 && own.rank < kMaxRank && bytes_.one_in(8);
    // Dimensions that may be left out.
    bool leading = as_mask ? mask_leads_ : rules.broadcasts && bytes_.one_in(2) && !keeps;
    if (name == "mask.additive") mask_gone_ = gone, mask_leads_ = leading;
    for (std::size_t d = 0; d <= rank; ++d) {
      if (keeps && static_cast<int>(d) == rules.kept_axis) add(1, false, rank);
      if (d == rank) break;
      const bool one = gone[d] || own.shape[d] == 1;
      leading = leading && one;
      if (!leading) add(gone[d] ? 1 : own.shape[d], same[d] && !gone[d], d);
    }
    std::int64_t step = 1;
    for (std::size_t i = shape.size(); i-- > 0;) {
      if (from[i] < rank && !gone[from[i]]) steps[from[i]] = step;
      step *= shape[i];
    }
    const Extents strides = decode_strides(bytes_, shape, repeated, rules.dense);
    Argument& argument = out_.all.emplace_back();
    argument.name = name;
    argument.written = written;
    argument.kept = written && (is_one_of(name, {"x", "dy"}) ||
                                (c.accumulate && is_one_of(name, {"y", "d_k", "d_v"})));
    argument.meant = &meant;
    argument.steps = steps;
    argument.in_order = std::ranges::find(gone, true) == gone.end();
    const DType dtype = decode_dtype(bytes_, name, own.dtype, c);
    const std::int64_t offset = bytes_.one_in(3) ? bytes_.below(16) : 0;
    if (Status status = argument.array.make(dtype, shape, strides, offset); !status.ok())
      return status;
    return device == Device::cuda ? argument.array.mirror() : Status{};
  }

  // A number for all rows as a tensor that says the same for each.
  Status number(std::string_view name, double value) { return constant(name, DType::f64, value); }
  Status integer(std::string_view name, std::int64_t value) {
    if (value > std::int64_t{1} << 52 || value < 0) return {};  // not every double is it
    return constant(name, DType::i64, static_cast<double>(value));
  }

  Status constant(std::string_view name, DType dtype, double value) {
    if (out_.find(name) != nullptr || !bytes_.one_in(8)) return {};
    Extents shape = call_.spec().row_shape();
    const bool one = bytes_.one_in(2);
    if (one) shape.clear();
    const Extents strides =
        decode_strides(bytes_, shape, std::vector<bool>(shape.size(), false), 0);
    Argument& argument = out_.all.emplace_back();
    argument.name = name;
    if (Status status = argument.array.make(dtype, shape, strides, 0); !status.ok()) return status;
    for (std::int64_t i = 0; i < argument.array.size(); ++i) argument.array.set(i, value);
    return device == Device::cuda ? argument.array.mirror() : Status{};
  }

  Bytes& bytes_;
  cli::Call& call_;
  Arguments& out_;
  std::vector<bool> mask_gone_;
  bool mask_leads_ = false;
};

}  // namespace

std::vector<std::int64_t> decode_strides(Bytes& bytes, const std::vector<std::int64_t>& shape,
                                         const std::vector<bool>& repeated, int dense) {
  const std::size_t rank = shape.size();
  Extents strides(rank, 1);
  const std::uint8_t how = bytes.byte();
  const bool plain = how % 2 == 0;
  std::vector<std::size_t> order(rank);  // the innermost first
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  const auto free = static_cast<std::size_t>(dense);
  for (std::size_t i = free; !plain && bytes.one_in(3) && i + 1 < rank; ++i) {
    std::swap(
        order[i],
        order[i + static_cast<std::size_t>(bytes.below(static_cast<std::int64_t>(rank - i)))]);
  }
  std::int64_t step = 1;
  for (std::size_t i = 0; i < rank; ++i) {
    const std::size_t d = order[i];
    const bool fixed = i < free;
    if (!plain && !fixed && bytes.one_in(4)) step += bytes.below(20);
    if (shape[d] <= 1 && !fixed && !plain) {
      strides[d] = bytes.pick({step, std::int64_t{0}, std::int64_t{-7}, std::int64_t{1} << 40});
      continue;
    }
    if (repeated[d] && !fixed) {
      strides[d] = 0;
      continue;
    }
    strides[d] = step;
    step *= std::max<std::int64_t>(shape[d], 1);
    if (!plain && !fixed && bytes.one_in(4)) strides[d] = -strides[d];
  }
  return strides;
}

Status lay(Bytes& bytes, cli::Call& call, Arguments& out) { return Laying(bytes, call, out).run(); }

}  // namespace onepass::fuzz

#include "ops/select/check.hpp"

#include "rows/describe.hpp"
#include "rows/options.hpp"

namespace onepass {
namespace {

Status lay_x(std::string_view argument, const TensorRef& x, Shape& shape, Operand& out) {
  ONEPASS_TRY(check_tensor(argument, x, false, check_floating));
  if (x.rank == 0) return invalid(argument, "a scalar has no row to select from");
  ONEPASS_TRY(Shape::make(x, -1, shape));
  return shape.lay_full(argument, x, Shape::Fit::exact, out);
}

// An output with K columns per row.
Status lay_selected(std::string_view argument, const TensorRef& t, const Shape& shape,
                    std::int64_t& k, Operand& out) {
  ONEPASS_TRY(check_tensor(argument, t, true));
  if (t.rank < 1) return invalid(argument, "a scalar has no room for what is selected");
  TensorRef rows = t;
  rows.rank = t.rank - 1;
  ONEPASS_TRY(shape.lay_rows(argument, rows, Shape::Fit::exact, out));
  const auto last = static_cast<std::size_t>(t.rank - 1);
  out.col_stride = t.strides[last];
  if (k != 0 && t.shape[last] != k) {
    return invalid(argument, t.shape[last], " columns, the values have ", k);
  }
  k = t.shape[last];
  return {};
}

Status check_k(std::string_view argument, std::int64_t k, std::int64_t cols) {
  if (k >= 1 && k <= cols) return {};
  return invalid(argument, "K = ", k, " is not between 1 and the ", cols, " elements of a row");
}

// Indices must fit their type.
Status check_indices(std::string_view argument, const TensorRef& t, std::int64_t cols) {
  ONEPASS_TRY(check_integers(argument, t));
  if (t.dtype == DType::i32 && cols > std::int64_t{1} << 31) {
    return invalid(argument, "dtype i32 cannot count ", cols, " elements");
  }
  return {};
}

template <class Option, class Value>
Status lay_each(std::string_view argument, const Option& option, const Shape& shape,
                EachRow<Value>& out) {
  return lay_per_row(argument, option, shape, out.value, out.rows);
}

// x, and what is selected from it: the K values or weights of each row and their indices.
struct Selection {
  Named x, values, indices;
};

Status lay_selection(const Selection& s, Shape& shape, RowArgs& args, Select& select) {
  ONEPASS_TRY(lay_x(s.x.name, s.x.tensor, shape, args.logits.x));
  ONEPASS_TRY(lay_selected(s.values.name, s.values.tensor, shape, select.k, args.out));
  ONEPASS_TRY(check_floating(s.values.name, s.values.tensor));
  ONEPASS_TRY(check_k(s.values.name, select.k, shape.cols()));
  ONEPASS_TRY(lay_selected(s.indices.name, s.indices.tensor, shape, select.k, select.indices));
  return check_indices(s.indices.name, s.indices.tensor, shape.cols());
}

bool is_temperature(double t) { return t >= 0 && std::isfinite(t); }
bool is_top_p(double p) { return p > 0 && p <= 1; }
bool is_min_p(double p) { return p >= 0 && p <= 1; }

// Checks a sample's temperature with the factors of the logits. It is not the logits' own, because
// it may be 0 (greedy).
Status check_own_factors(const RowArgs& args, double temperature) {
  const Logits& z = args.logits;
  return temperature == 0 || z.scale_rows
             ? Status{}
             : check_factors(z.scale, temperature, z.softcap, z.x.dtype);
}

// How many candidates a piece of a row can contribute. A per-row top_k on a GPU is not known when
// the call is planned: the plan assumes the usual number, and the kernel searches rows that need
// more.
std::int64_t candidates(const RowArgs& args, const Select& select, bool on_gpu) {
  if (args.op != Op::sample) return select.k;
  const std::int64_t cols = args.space.cols;
  const bool greedy = on_gpu && !select.temperature.rows && select.temperature.value == 0;
  if (select.top_k.rows && !on_gpu) return cols;
  return candidates_of_sample(select.top_k.rows ? 0 : select.top_k.value, greedy, cols);
}

constexpr std::string_view kTemperature = "0 or a positive number";
constexpr std::string_view kTopP = "above 0 and at most 1";
constexpr std::string_view kMinP = "between 0 and 1";

}  // namespace

Status check_topk(ConstTensor x, Tensor values, Tensor indices, const TopkOptions& options,
                  RowArgs& args, Select& select) {
  args.op = Op::topk;
  select = {.values = options.values, .sorted = options.sorted};
  Shape shape;
  ONEPASS_TRY(
      lay_selection({{"x", x}, {"values", values}, {"indices", indices}}, shape, args, select));
  ONEPASS_TRY(lay_lse(options.lse, shape, args.lse));
  ONEPASS_TRY(lay_logits(options, shape, x.dtype, args.logits));
  const bool wants_target = options.target_logprob.present() || options.target_rank.present();
  if (options.target.present()) {
    ONEPASS_TRY(check_tensor("target", options.target, false, check_integers));
    ONEPASS_TRY(shape.lay_rows("target", options.target, Shape::Fit::exact, args.target));
  } else if (wants_target) {
    return invalid("target", "is missing: target_logprob and target_rank are of a target");
  }
  ONEPASS_TRY(lay_row_output("target_logprob", options.target_logprob, check_floating, shape,
                             select.target_logprob));
  ONEPASS_TRY(lay_row_output("target_rank", options.target_rank, check_integers, shape,
                             select.target_rank));
  NamedList inputs = option_tensors(options);
  inputs.add({{"x", x}, {"target", options.target}});
  ONEPASS_TRY(check_overlaps({{"values", values},
                              {"indices", indices},
                              {"lse", options.lse},
                              {"target_logprob", options.target_logprob},
                              {"target_rank", options.target_rank}},
                             inputs, {}, args.in_place));
  lay_space(shape, args, {&select.indices, &select.target_logprob, &select.target_rank});
  return {};
}

Status check_sample(ConstTensor x, Tensor token, const SampleOptions& options, RowArgs& args,
                    Select& select) {
  args.op = Op::sample;
  select = {};
  Shape shape;
  ONEPASS_TRY(lay_x("x", x, shape, args.logits.x));
  ONEPASS_TRY(check_tensor("token", token, true));
  ONEPASS_TRY(check_indices("token", token, shape.cols()));
  ONEPASS_TRY(shape.lay_rows("token", token, Shape::Fit::exact, args.out));
  ONEPASS_TRY(lay_row_output("logprob", options.logprob, check_floating, shape, select.logprob));
  ONEPASS_TRY(lay_row_output("valid", options.valid, check_u8, shape, select.valid));
  // Not the temperature, which may be 0 here.
  const TopkOptions logits{
      .scale = options.scale, .softcap = options.softcap, .mask = options.mask};
  ONEPASS_TRY(lay_logits(logits, shape, x.dtype, args.logits));
  ONEPASS_TRY(lay_each("temperature", options.temperature, shape, select.temperature));
  ONEPASS_TRY(lay_each("top_p", options.top_p, shape, select.top_p));
  ONEPASS_TRY(lay_each("min_p", options.min_p, shape, select.min_p));
  ONEPASS_TRY(lay_each("top_k", options.top_k, shape, select.top_k));
  ONEPASS_TRY(lay_each("seed", options.seed, shape, select.seed));
  ONEPASS_TRY(lay_each("offset", options.offset, shape, select.offset));
  if (!select.temperature.rows && !is_temperature(select.temperature.value)) {
    return invalid("temperature", select.temperature.value, " is not ", kTemperature);
  }
  if (!select.temperature.rows) ONEPASS_TRY(check_own_factors(args, select.temperature.value));
  if (!select.top_p.rows && !is_top_p(select.top_p.value)) {
    return invalid("top_p", select.top_p.value, " is not ", kTopP);
  }
  if (!select.min_p.rows && !is_min_p(select.min_p.value)) {
    return invalid("min_p", select.min_p.value, " is not ", kMinP);
  }
  if (!select.top_k.rows && select.top_k.value < 0) {
    return invalid("top_k", select.top_k.value, " is negative");
  }
  NamedList inputs = option_tensors(logits);
  inputs.add({{"x", x},
              {"temperature", options.temperature.rows},
              {"top_k", options.top_k.rows},
              {"top_p", options.top_p.rows},
              {"min_p", options.min_p.rows},
              {"seed", options.seed.rows},
              {"offset", options.offset.rows}});
  ONEPASS_TRY(
      check_overlaps({{"token", token}, {"logprob", options.logprob}, {"valid", options.valid}},
                     inputs, {}, args.in_place));
  lay_space(shape, args,
            {&select.temperature.rows, &select.top_p.rows, &select.min_p.rows, &select.top_k.rows,
             &select.seed.rows, &select.offset.rows, &select.logprob, &select.valid});
  return {};
}

Status check_gate(ConstTensor scores, Tensor weights, Tensor experts, const GateOptions& options,
                  RowArgs& args, Select& select) {
  args.op = Op::gate;
  select = {.score = options.score, .renormalize = options.renormalize, .scale = options.scale};
  Shape shape;
  ONEPASS_TRY(lay_selection({{"scores", scores}, {"weights", weights}, {"experts", experts}}, shape,
                            args, select));
  if (!std::isfinite(options.scale)) return invalid("scale", options.scale, " is not finite");
  if (!fits(options.scale, scores.dtype)) {
    return invalid("scale", options.scale, " is too small or too large for weights computed in ",
                   name(compute_type(scores.dtype)));
  }
  ONEPASS_TRY(lay_per_column("bias", options.bias, shape.cols(), "experts", select.bias));
  ONEPASS_TRY(check_overlaps({{"weights", weights}, {"experts", experts}},
                             {{"scores", scores}, {"bias", options.bias}}, {}, args.in_place));
  args.logits.queries = shape.queries();
  lay_space(shape, args, {&select.indices});
  return {};
}

Problem describe(const RowArgs& args, const Select& select, bool on_gpu) {
  Problem p = describe(args);
  p.k = candidates(args, select, on_gpu);
  p.wants_lse = args.lse || args.target;
  p.weighs = select.values == TopkValues::probability || select.values == TopkValues::renormalized;
  p.textbook = select.values == TopkValues::probability && select.sorted &&
               select.indices.dtype == DType::i64 && select.indices.col_stride == 1 &&
               args.out.col_stride == 1;
  return p;
}

Status check_select_values(const RowArgs& args, const Select& select) {
  const RowSpace& space = args.space;
  if (args.op == Op::topk) {
    const std::int64_t cols = space.cols;
    ONEPASS_TRY(check_values<std::int64_t>("target", space, args.target,
                                           "a token below " + std::to_string(cols),
                                           [cols](std::int64_t v) { return v >= 0 && v < cols; }));
  }
  ONEPASS_TRY(check_row_values(args));
  ONEPASS_TRY(check_values<double>("temperature", space, select.temperature.rows, kTemperature,
                                   is_temperature));
  for (std::int64_t row = 0; select.temperature.rows && row < space.rows; ++row) {
    ONEPASS_TRY(check_own_factors(args, select.temperature.of(space, row)));
  }
  ONEPASS_TRY(check_values<double>("top_p", space, select.top_p.rows, kTopP, is_top_p));
  ONEPASS_TRY(check_values<double>("min_p", space, select.min_p.rows, kMinP, is_min_p));
  return check_values<std::int64_t>("top_k", space, select.top_k.rows, "0 or more",
                                    [](std::int64_t v) { return v >= 0; });
}

}  // namespace onepass

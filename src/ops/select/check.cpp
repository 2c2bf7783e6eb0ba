#include "ops/select/check.hpp"

#include "rows/describe.hpp"
#include "rows/options.hpp"

namespace onepass {
namespace {

Status lay_x(std::string_view argument, const TensorRef& x, Shape& shape, Operand& out) {
  ONEPASS_TRY(check_tensor(argument, x, false));
  ONEPASS_TRY(check_floating(argument, x));
  if (x.rank == 0) return invalid(argument, "a scalar has no row to select from");
  ONEPASS_TRY(Shape::make(x, -1, shape));
  return shape.lay_full(argument, x, Shape::Fit::exact, out);
}

// An output with K columns a row.
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

// One value a row to write, if it is wanted.
template <class Check>
Status lay_optional(std::string_view argument, const TensorRef& t, const Shape& shape, Check check,
                    Operand& out) {
  if (!t.present()) return {};
  ONEPASS_TRY(check_tensor(argument, t, true));
  ONEPASS_TRY(check(argument, t));
  return shape.lay_rows(argument, t, Shape::Fit::exact, out);
}

Status lay_each(std::string_view argument, const PerRowInteger& option, const Shape& shape,
                EachRow<std::int64_t>& out) {
  out.value = option.value;
  if (!option.rows.present()) return {};
  ONEPASS_TRY(check_tensor(argument, option.rows, false));
  ONEPASS_TRY(check_integers(argument, option.rows));
  return shape.lay_rows(argument, option.rows, Shape::Fit::broadcast, out.rows);
}

Status check_u8(std::string_view argument, const TensorRef& t) {
  if (t.dtype == DType::u8) return {};
  return invalid(argument, "dtype ", name(t.dtype), " is not u8");
}

bool is_temperature(double t) { return t >= 0 && std::isfinite(t); }
bool is_top_p(double p) { return p > 0 && p <= 1; }
bool is_min_p(double p) { return p >= 0 && p <= 1; }

// A sample's temperature stands apart from the logits' own, as it may be 0: the likeliest token.
Status check_own_factors(const RowArgs& args, double temperature) {
  const Logits& z = args.logits;
  return temperature == 0 || z.scale_rows
             ? Status{}
             : check_factors(z.scale, temperature, z.softcap, z.x.dtype);
}

// Candidates that a piece of a row can leave. A GPU cannot look at each row's own before it plans:
// it takes a usual number, and a row that asks for more is searched.
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
  ONEPASS_TRY(lay_x("x", x, shape, args.logits.x));
  ONEPASS_TRY(lay_selected("values", values, shape, select.k, args.out));
  ONEPASS_TRY(check_floating("values", values));
  ONEPASS_TRY(check_k("values", select.k, shape.cols()));
  ONEPASS_TRY(lay_selected("indices", indices, shape, select.k, select.indices));
  ONEPASS_TRY(check_indices("indices", indices, shape.cols()));
  ONEPASS_TRY(lay_lse(options.lse, shape, args.lse));
  ONEPASS_TRY(lay_logits(options, shape, x.dtype, args.logits));
  const bool wants_target = options.target_logprob.present() || options.target_rank.present();
  if (options.target.present()) {
    ONEPASS_TRY(check_tensor("target", options.target, false));
    ONEPASS_TRY(check_integers("target", options.target));
    ONEPASS_TRY(shape.lay_rows("target", options.target, Shape::Fit::exact, args.target));
  } else if (wants_target) {
    return invalid("target", "is missing: target_logprob and target_rank are of a target");
  }
  ONEPASS_TRY(lay_optional("target_logprob", options.target_logprob, shape, check_floating,
                           select.target_logprob));
  ONEPASS_TRY(
      lay_optional("target_rank", options.target_rank, shape, check_integers, select.target_rank));
  NamedList inputs = option_tensors(options);
  inputs.add({{"x", x}, {"target", options.target}});
  ONEPASS_TRY(check_overlaps({{"values", values},
                              {"indices", indices},
                              {"lse", options.lse},
                              {"target_logprob", options.target_logprob},
                              {"target_rank", options.target_rank}},
                             inputs, {}, args.in_place));
  args.space = shape.space();
  collapse_present(args, std::initializer_list<Operand*>{&select.indices, &select.target_logprob,
                                                         &select.target_rank});
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
  ONEPASS_TRY(lay_optional("logprob", options.logprob, shape, check_floating, select.logprob));
  ONEPASS_TRY(lay_optional("valid", options.valid, shape, check_u8, select.valid));
  // The temperature may be 0 here, so a row finds its own.
  const TopkOptions logits{
      .scale = options.scale, .softcap = options.softcap, .mask = options.mask};
  ONEPASS_TRY(lay_logits(logits, shape, x.dtype, args.logits));
  ONEPASS_TRY(lay_per_row("temperature", options.temperature, shape, select.temperature.value,
                          select.temperature.rows));
  ONEPASS_TRY(lay_per_row("top_p", options.top_p, shape, select.top_p.value, select.top_p.rows));
  ONEPASS_TRY(lay_per_row("min_p", options.min_p, shape, select.min_p.value, select.min_p.rows));
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
  args.space = shape.space();
  collapse_present(args, std::initializer_list<Operand*>{
                             &select.temperature.rows, &select.top_p.rows, &select.min_p.rows,
                             &select.top_k.rows, &select.seed.rows, &select.offset.rows,
                             &select.logprob, &select.valid});
  return {};
}

Status check_gate(ConstTensor scores, Tensor weights, Tensor experts, const GateOptions& options,
                  RowArgs& args, Select& select) {
  args.op = Op::gate;
  select = {.score = options.score, .renormalize = options.renormalize, .scale = options.scale};
  Shape shape;
  ONEPASS_TRY(lay_x("scores", scores, shape, args.logits.x));
  ONEPASS_TRY(lay_selected("weights", weights, shape, select.k, args.out));
  ONEPASS_TRY(check_floating("weights", weights));
  ONEPASS_TRY(check_k("weights", select.k, shape.cols()));
  ONEPASS_TRY(lay_selected("experts", experts, shape, select.k, select.indices));
  ONEPASS_TRY(check_indices("experts", experts, shape.cols()));
  if (!std::isfinite(options.scale)) return invalid("scale", options.scale, " is not finite");
  if (!fits(options.scale, scores.dtype)) {
    return invalid("scale", options.scale, " is too small or too large for weights computed in ",
                   name(compute_type(scores.dtype)));
  }
  if (options.bias.present()) {
    ONEPASS_TRY(check_tensor("bias", options.bias, false));
    ONEPASS_TRY(check_floating("bias", options.bias));
    if (options.bias.rank != 1 || options.bias.shape[0] != shape.cols()) {
      return invalid("bias", "shape ", shape_text(options.bias), " is not one value for each of ",
                     shape.cols(), " experts");
    }
    select.bias = {.data = const_cast<void*>(options.bias.data),
                   .dtype = options.bias.dtype,
                   .col_stride = options.bias.strides[0]};
  }
  ONEPASS_TRY(check_overlaps({{"weights", weights}, {"experts", experts}},
                             {{"scores", scores}, {"bias", options.bias}}, {}, args.in_place));
  args.space = shape.space();
  args.logits.queries = shape.queries();
  collapse_present(args, std::initializer_list<Operand*>{&select.indices});
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

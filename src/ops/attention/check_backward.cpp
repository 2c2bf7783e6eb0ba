#include "ops/attention/check_backward.hpp"

#include <algorithm>

#include "ops/attention/check.hpp"
#include "ops/attention/lay.hpp"
#include "rows/options.hpp"

namespace onepass {
namespace {

AttentionOptions forward_options(const AttentionBackwardOptions& options) {
  return {.scale = options.scale,
          .softcap = options.softcap,
          .mask = options.mask,
          .alibi = options.alibi,
          .sinks = options.sinks,
          .q_offsets = options.q_offsets,
          .kv_offsets = options.kv_offsets};
}

Status check_same_shape(std::string_view argument, const TensorRef& t, std::string_view as,
                        const TensorRef& other) {
  if (t.rank == other.rank &&
      std::equal(t.shape.begin(), t.shape.begin() + t.rank, other.shape.begin())) {
    return {};
  }
  return invalid(argument, "shape ", shape_text(t), " is not that of ", as, ", ",
                 shape_text(other));
}

// The gradient of q, k or v.
Status lay_gradient(std::string_view argument, const TensorRef& t, std::string_view as,
                    const TensorRef& other, DType in, Heads& out) {
  ONEPASS_TRY(check_operand(argument, t, other.rank, as, true));
  ONEPASS_TRY(check_same_shape(argument, t, as, other));
  if (t.dtype != in && t.dtype != DType::f32) {
    return invalid(argument, "dtype ", name(t.dtype), " is neither that of q, ", name(in),
                   ", nor f32");
  }
  out = lay(t, t.rank - 2);
  return {};
}

Status lay_gradients(const AttentionBackwardTensors& t, AttentionBackwardArgs& args) {
  const DType in = t.q.dtype;
  ONEPASS_TRY(lay_gradient("d_q", t.d_q, "q", t.q, in, args.d_q));
  ONEPASS_TRY(lay_gradient("d_k", t.d_k, "k", t.k, in, args.d_k));
  ONEPASS_TRY(lay_gradient("d_v", t.d_v, "v", t.v, in, args.d_v));
  for (const auto& [argument, dtype] :
       {std::pair("d_k", t.d_k.dtype), std::pair("d_v", t.d_v.dtype)}) {
    if (dtype != t.d_q.dtype) {
      return invalid(argument, "dtype ", name(dtype), " is not that of d_q, ", name(t.d_q.dtype));
    }
  }
  return {};
}

// The optional outputs.
Status lay_more_gradients(const AttentionBackwardOptions& options, AttentionBackwardArgs& args) {
  if (options.d_sinks.present()) {
    if (!args.sinks) return invalid("d_sinks", "there are no sinks");
    ONEPASS_TRY(lay_heads("d_sinks", options.d_sinks, args, false, true, args.d_sinks));
  }
  const Tensor& d = options.d_additive;
  if (!d.present()) return {};
  if (!args.additive) return invalid("d_additive", "there is no mask.additive");
  ONEPASS_TRY(lay_mask("d_additive", d, args, true, args.d_additive));
  ONEPASS_TRY(check_floating("d_additive", d));
  ONEPASS_TRY(check_same_shape("d_additive", d, "mask.additive", options.mask.additive));
  args.mask_shape.fill(1);
  std::copy_n(d.shape.begin(), d.rank, args.mask_shape.end() - d.rank);
  return {};
}

// Refuses outputs that share memory with another argument.
Status check_memory(const AttentionBackwardTensors& t, const AttentionBackwardOptions& options) {
  const Mask& mask = options.mask;
  bool in_place = false;
  return check_overlaps({{"d_q", t.d_q},
                         {"d_k", t.d_k},
                         {"d_v", t.d_v},
                         {"d_sinks", options.d_sinks},
                         {"d_additive", options.d_additive}},
                        {{"q", t.q},
                         {"k", t.k},
                         {"v", t.v},
                         {"o", t.o},
                         {"lse", t.lse},
                         {"d_o", t.d_o},
                         {"d_lse", options.d_lse},
                         {"mask.additive", mask.additive},
                         {"mask.boolean", mask.boolean},
                         {"mask.lengths", mask.lengths},
                         {"alibi", options.alibi},
                         {"sinks", options.sinks},
                         {"q_offsets", options.q_offsets},
                         {"kv_offsets", options.kv_offsets}},
                        {}, in_place);
}

}  // namespace

Status check_attention_backward(const AttentionBackwardTensors& t,
                                const AttentionBackwardOptions& options,
                                AttentionBackwardArgs& args) {
  args = {};
  if (options.pages.present()) {
    return {Code::unsupported, "pages: keys in pages have no gradient; pass k and v without pages"};
  }
  ONEPASS_TRY(lay_attention(t.q, t.k, t.v, forward_options(options), args));
  ONEPASS_TRY(lay_values("o", t.o, t.q, args, false, args.o));
  ONEPASS_TRY(lay_values("d_o", t.d_o, t.q, args, false, args.d_o));
  if (!t.lse.present()) return invalid("lse", "is missing: the forward writes it on request");
  ONEPASS_TRY(lay_row_values("lse", t.lse, t.q, false, args.lse));
  ONEPASS_TRY(lay_row_values("d_lse", options.d_lse, t.q, false, args.d_lse));
  ONEPASS_TRY(lay_gradients(t, args));
  ONEPASS_TRY(lay_more_gradients(options, args));
  args.accumulate = options.accumulate;
  return check_memory(t, options);
}

Problem describe(const AttentionBackwardArgs& args, bool deterministic) {
  Problem p = describe(static_cast<const AttentionArgs&>(args));
  p.op = Op::attention_backward;
  p.out = args.d_q.dtype;
  p.wants_lse = false;
  p.mixed_inputs = args.d_o.dtype != p.in;  // o goes through no product of tiles
  AttentionFacts& a = p.attention;
  a.d_lse = static_cast<bool>(args.d_lse);
  a.d_sinks = static_cast<bool>(args.d_sinks);
  a.d_additive = static_cast<bool>(args.d_additive);
  a.accumulates = args.accumulate;
  a.deterministic = deterministic;
  for (const Heads* t : {&args.d_o, &args.d_q}) {
    a.aligned = a.aligned && aligned(*t, queries_of(args));
    a.strided = a.strided && strided(*t, queries_of(args));
  }
  for (const Heads* t : {&args.d_k, &args.d_v}) {
    a.aligned = a.aligned && aligned(*t, keys_of(args));
    a.strided = a.strided && strided(*t, keys_of(args));
  }
  return p;
}

}  // namespace onepass

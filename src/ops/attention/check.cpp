#include "ops/attention/check.hpp"

#include <algorithm>

#include "ops/attention/lay.hpp"
#include "rows/options.hpp"

namespace onepass {

Status check_attention(ConstTensor q, ConstTensor k, ConstTensor v, Tensor o,
                       const AttentionOptions& options, AttentionArgs& args) {
  args = {};
  ONEPASS_TRY(lay_attention(q, k, v, options, args));
  ONEPASS_TRY(lay_values("o", o, q, args, true, args.o));
  ONEPASS_TRY(lay_row_values("lse", options.lse, q, true, args.lse));
  const Mask& mask = options.mask;
  bool in_place = false;
  return check_overlaps({{"o", o}, {"lse", options.lse}},
                        {{"q", q},
                         {"k", k},
                         {"v", v},
                         {"mask.additive", mask.additive},
                         {"mask.boolean", mask.boolean},
                         {"mask.lengths", mask.lengths},
                         {"alibi", options.alibi},
                         {"sinks", options.sinks},
                         {"q_offsets", options.q_offsets},
                         {"kv_offsets", options.kv_offsets},
                         {"pages", options.pages}},
                        {}, in_place);
}

namespace {

Status check_offsets(std::string_view argument, const Places& places, std::int64_t batch,
                     std::int64_t tokens) {
  if (!places) return {};
  if (places[0] != 0) return invalid(argument, places[0], " at 0 is not 0");
  for (std::int64_t b = 1; b <= batch; ++b) {
    if (places[b] < places[b - 1]) {
      return invalid(argument, places[b], " at ", b, " is less than the ", places[b - 1],
                     " before it");
    }
    if (places[b] > tokens) {
      return invalid(argument, places[b], " at ", b, " is past the ", tokens, " tokens");
    }
  }
  return {};
}

Status check_table(const AttentionArgs& args, std::int64_t b, std::int64_t length) {
  const Pages& pages = args.pages;
  for (std::int64_t i = 0; i * pages.size < length; ++i) {
    const std::int32_t page = pages.table[b * pages.stride + i];
    if (page < 0 || page >= pages.count) {
      return invalid("pages", page, " at [", b, ", ", i, "] is not one of the ", pages.count,
                     " pages of k");
    }
  }
  return {};
}

}  // namespace

Status check_attention_values(const AttentionArgs& args) {
  ONEPASS_TRY(check_offsets("q_offsets", args.q_offsets, args.batch, args.queries));
  ONEPASS_TRY(check_offsets("kv_offsets", args.kv_offsets, args.batch, args.keys));
  for (std::int64_t b = 0; args.lengths && b < args.batch; ++b) {
    const std::int64_t keys =
        args.kv_offsets ? args.kv_offsets[b + 1] - args.kv_offsets[b] : args.keys;
    if (args.lengths[b] < 0 || args.lengths[b] > keys) {
      return invalid("mask.lengths", args.lengths[b], " at ", b, " is not between 0 and ", keys);
    }
    if (args.pages) ONEPASS_TRY(check_table(args, b, args.lengths[b]));
  }
  return {};
}

Problem describe(const AttentionArgs& args) {
  Problem p{.op = Op::attention, .cols = args.keys, .in = args.q.dtype, .out = args.o.dtype};
  AttentionFacts& a = p.attention;
  a = {.batch = args.batch,
       .heads = args.heads,
       .kv_heads = args.kv_heads,
       .queries = args.queries,
       .keys = args.keys,
       .dim = args.dim,
       .dim_v = args.dim_v == args.dim ? 0 : args.dim_v,
       .page = args.pages ? args.pages.size : 0,
       .window_left = args.window_left,
       .window_right = args.window_right,
       .split = args.split,
       .causal = args.causal};
  a.lengths = static_cast<bool>(args.lengths);
  a.q_offsets = static_cast<bool>(args.q_offsets);
  a.kv_offsets = static_cast<bool>(args.kv_offsets);
  a.softcap = args.softcap > 0;
  a.additive = static_cast<bool>(args.additive);
  a.boolean = static_cast<bool>(args.boolean);
  a.alibi = static_cast<bool>(args.alibi);
  a.sinks = static_cast<bool>(args.sinks);
  a.strided = strided(args.q, queries_of(args)) && strided(args.k, keys_of(args)) &&
              strided(args.v, keys_of(args)) && strided(args.o, queries_of(args));
  a.aligned = aligned(args.q, queries_of(args)) && aligned(args.k, keys_of(args)) &&
              aligned(args.v, keys_of(args)) && aligned(args.o, queries_of(args));
  p.rows = args.heads * args.queries * (args.q_offsets ? 1 : args.batch);
  p.wants_lse = static_cast<bool>(args.lse);
  return p;
}

}  // namespace onepass

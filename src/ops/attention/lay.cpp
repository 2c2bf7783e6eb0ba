#include "ops/attention/lay.hpp"

#include <cmath>
#include <limits>

#include "rows/options.hpp"

namespace onepass {
namespace {

constexpr std::int64_t kMostDim = 512;

Status check_dim(std::string_view argument, std::int64_t dim) {
  if (dim >= 8 && dim <= kMostDim && dim % 8 == 0) return {};
  return invalid(argument, "dim ", dim, " is not a multiple of 8 from 8 to ", kMostDim);
}

}  // namespace

Status check_operand(std::string_view argument, const TensorRef& t, int rank, std::string_view why,
                     bool written) {
  ONEPASS_TRY(check_tensor(argument, t, written, check_floating));
  if (t.rank != rank) {
    return invalid(argument, "shape ", shape_text(t), " has ", t.rank, " dimensions, not the ",
                   rank, " of ", why);
  }
  const auto last = static_cast<std::size_t>(rank - 1);
  if (t.shape[last] > 1 && t.strides[last] != 1) {
    return invalid(argument, "stride ", t.strides[last], " of the last dimension is not 1");
  }
  return {};
}

Heads lay(const TensorRef& t, int token) {
  const auto at = static_cast<std::size_t>(token);
  return {.data = const_cast<void*>(t.data),
          .dtype = t.dtype,
          .batch = token > 1 ? t.strides[0] : 0,
          .head = t.strides[at - 1],
          .token = t.strides[at]};
}

Status lay_row_values(std::string_view argument, const TensorRef& t, const TensorRef& q,
                      bool written, Heads& out) {
  if (!t.present()) return {};
  ONEPASS_TRY(check_tensor(argument, t, written, check_sums));
  const std::span wanted(q.shape.data(), static_cast<std::size_t>(q.rank - 1));
  if (t.rank != q.rank - 1 || !std::equal(wanted.begin(), wanted.end(), t.shape.begin())) {
    return invalid(argument, "shape ", shape_text(t), " is not that of q without the last, ",
                   shape_text(wanted));
  }
  out = lay(t, t.rank - 1);
  return {};
}

Status lay_values(std::string_view argument, const TensorRef& t, const TensorRef& q,
                  const AttentionArgs& args, bool written, Heads& out) {
  ONEPASS_TRY(check_operand(argument, t, q.rank, "q", written));
  const auto outer = static_cast<std::size_t>(q.rank - 1);
  if (!std::equal(q.shape.begin(), q.shape.begin() + outer, t.shape.begin()) ||
      t.shape[outer] != args.dim_v) {
    return invalid(argument, "shape ", shape_text(t), " is not that of q, ", shape_text(q),
                   ", with the dim of v, ", args.dim_v);
  }
  out = lay(t, q.rank - 2);
  return {};
}

Status lay_mask(std::string_view argument, const TensorRef& t, const AttentionArgs& args,
                bool written, Heads& out) {
  ONEPASS_TRY(check_tensor(argument, t, written));
  const std::int64_t full[] = {args.batch, args.heads, args.queries, args.keys};
  std::int64_t strides[4] = {};
  const int missing = 4 - t.rank;
  bool fits = missing >= 0;
  for (int i = 0; fits && i < t.rank; ++i) {
    if (t.shape[i] != 1) strides[i + missing] = t.strides[i];
    fits = t.shape[i] == 1 || t.shape[i] == full[i + missing];
  }
  if (!fits) {
    return invalid(argument, "shape ", shape_text(t),
                   " does not broadcast to batch, heads, queries, keys: ", shape_text(full));
  }
  out = {.data = const_cast<void*>(t.data),
         .dtype = t.dtype,
         .batch = strides[0],
         .head = strides[1],
         .token = strides[2],
         .key = strides[3]};
  return {};
}

Status lay_heads(std::string_view argument, const TensorRef& t, const AttentionArgs& args,
                 bool batches, bool written, Heads& out) {
  if (!t.present()) return {};
  ONEPASS_TRY(check_tensor(argument, t, written, check_floating));
  const bool both = batches && t.rank == 2;
  if (t.rank != (both ? 2 : 1) || t.shape[both ? 1 : 0] != args.heads ||
      (both && t.shape[0] != args.batch)) {
    return invalid(argument, "shape ", shape_text(t), " is not one value for each of ", args.heads,
                   " heads", batches ? ", or of the batch and them" : "");
  }
  out = {.data = const_cast<void*>(t.data),
         .dtype = t.dtype,
         .batch = both ? t.strides[0] : 0,
         .head = t.strides[both ? 1 : 0]};
  return {};
}

namespace {

// batch + 1 offsets, or one length per sequence.
Status lay_places(std::string_view argument, const TensorRef& t, std::int64_t count, Places& out) {
  if (!t.present()) return {};
  ONEPASS_TRY(check_tensor(argument, t, false, check_integers));
  if (t.rank != 1 || (count >= 0 && t.shape[0] != count)) {
    return invalid(argument, "shape ", shape_text(t), " is not [",
                   count >= 0 ? std::to_string(count) : "batch + 1", "]");
  }
  if (t.shape[0] > 1 && t.strides[0] != 1) {
    return invalid(argument, "stride ", t.strides[0], " is not 1");
  }
  out = {.data = t.data, .dtype = t.dtype};
  return {};
}

// Numbers and flags, which are checked without a tensor.
Status check_numbers(const AttentionOptions& options, AttentionArgs& args) {
  args.scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(args.dim)));
  const DType computed = compute_type(args.q.dtype);
  const bool wide = computed == DType::f64;
  if (!std::isfinite(wide ? args.scale : static_cast<float>(args.scale))) {
    return invalid("scale", args.scale, " is not finite in ", name(computed));
  }
  ONEPASS_TRY(check_softcap(options.softcap));
  if (options.softcap > 0 && !fits(options.softcap, computed)) {
    return invalid("softcap", options.softcap, " is too small or too large for ", name(computed));
  }
  const Mask& mask = options.mask;
  ONEPASS_TRY(check_window(mask));
  if (options.split < 0) return invalid("split", options.split, " is negative");
  args.softcap = options.softcap;
  args.causal = mask.causal;
  args.window_left = mask.window_left;
  args.window_right = mask.window_right;
  args.split = options.split;
  return {};
}

// The block table, and how many keys it has room for.
Status lay_pages(const AttentionOptions& options, const TensorRef& k, AttentionArgs& args) {
  const TensorRef& t = options.pages;
  if (options.kv_offsets.present()) {
    return invalid("kv_offsets", "are of keys side by side, and these are in pages");
  }
  if (!options.mask.lengths.present()) {
    return invalid("mask.lengths", "are missing: keys in pages need them");
  }
  ONEPASS_TRY(check_tensor("pages", t, false));
  if (t.dtype != DType::i32) return invalid("pages", "dtype ", name(t.dtype), " is not i32");
  if (t.rank != 2 || t.shape[0] != args.batch) {
    return invalid("pages", "shape ", shape_text(t), " is not [", args.batch,
                   ", most pages of a sequence]");
  }
  if (t.shape[1] > 1 && t.strides[1] != 1) {
    return invalid("pages", "stride ", t.strides[1], " of the last dimension is not 1");
  }
  if (k.shape[2] < 1) return invalid("k", "a page has ", k.shape[2], " keys, not 1 or more");
  if (__builtin_mul_overflow(t.shape[1], k.shape[2], &args.keys)) {
    return invalid("pages", "shape ", shape_text(t), " has room for more keys than 64 bits count");
  }
  args.pages = {.table = static_cast<const std::int32_t*>(t.data),
                .stride = t.strides[0],
                .size = k.shape[2],
                .count = k.shape[0],
                .checked = options.check_pages};
  return {};
}

// Heads, batch, tokens and dim of q, k and v, and whether they match.
Status lay_inputs(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                  const AttentionOptions& options, AttentionArgs& args) {
  const bool ragged_q = options.q_offsets.present();
  const bool ragged_kv = options.kv_offsets.present();
  const int q_rank = ragged_q ? 3 : 4;
  const int kv_rank = ragged_kv ? 3 : 4;
  const std::string_view q_why =
      ragged_q ? "heads, tokens, dim with q_offsets" : "batch, heads, queries, dim";
  const std::string_view kv_why = ragged_kv                 ? "heads, tokens, dim with kv_offsets"
                                  : options.pages.present() ? "pages, heads, page size, dim"
                                                            : "batch, heads, keys, dim";
  ONEPASS_TRY(check_operand("q", q, q_rank, q_why, false));
  ONEPASS_TRY(check_operand("k", k, kv_rank, kv_why, false));
  ONEPASS_TRY(check_operand("v", v, kv_rank, kv_why, false));
  for (const auto& [argument, t] : {std::pair{"k", &k}, std::pair{"v", &v}}) {
    if (t->dtype != q.dtype) {
      return invalid(argument, "dtype ", name(t->dtype), " is not that of q, ", name(q.dtype));
    }
  }
  const std::int64_t dim = q.shape[static_cast<std::size_t>(q_rank - 1)];
  const std::int64_t dim_v = v.shape[static_cast<std::size_t>(kv_rank - 1)];
  ONEPASS_TRY(check_dim("q", dim));
  if (k.shape[static_cast<std::size_t>(kv_rank - 1)] != dim) {
    return invalid("k", "shape ", shape_text(k), " has another dim than the ", dim, " of q");
  }
  if (!std::equal(k.shape.begin(), k.shape.begin() + kv_rank - 1, v.shape.begin())) {
    return invalid("v", "shape ", shape_text(v), " is not that of k but for the last, ",
                   shape_text(k));
  }
  ONEPASS_TRY(check_dim("v", dim_v));
  args.dim = static_cast<int>(dim);
  args.dim_v = static_cast<int>(dim_v);
  args.heads = q.shape[static_cast<std::size_t>(q_rank - 3)];
  args.kv_heads = k.shape[static_cast<std::size_t>(kv_rank - 3)];
  if (args.kv_heads == 0 ? args.heads != 0 : args.heads % args.kv_heads != 0) {
    return invalid("k", args.kv_heads, " heads do not divide the ", args.heads, " of q");
  }
  args.queries = q.shape[static_cast<std::size_t>(q_rank - 2)];
  args.keys = k.shape[static_cast<std::size_t>(kv_rank - 2)];
  args.q = lay(q, q_rank - 2);
  args.k = lay(k, kv_rank - 2);
  args.v = lay(v, kv_rank - 2);
  return {};
}

// The number of sequences, from q or its offsets.
Status lay_batch(const TensorRef& q, const TensorRef& k, const AttentionOptions& options,
                 AttentionArgs& args) {
  ONEPASS_TRY(lay_places("q_offsets", options.q_offsets, -1, args.q_offsets));
  if (options.q_offsets.present() && options.q_offsets.shape[0] < 1) {
    return invalid("q_offsets", "shape ", shape_text(options.q_offsets), " is not [batch + 1]");
  }
  args.batch = options.q_offsets.present() ? options.q_offsets.shape[0] - 1 : q.shape[0];
  ONEPASS_TRY(lay_places("kv_offsets", options.kv_offsets, args.batch + 1, args.kv_offsets));
  ONEPASS_TRY(lay_places("mask.lengths", options.mask.lengths, args.batch, args.lengths));
  if (options.pages.present()) return lay_pages(options, k, args);
  if (!options.kv_offsets.present() && k.shape[0] != args.batch) {
    return invalid("k", "batch ", k.shape[0], " is not that of q, ", args.batch);
  }
  return {};
}

}  // namespace

Status lay_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                     const AttentionOptions& options, AttentionArgs& args) {
  ONEPASS_TRY(lay_inputs(q, k, v, options, args));
  ONEPASS_TRY(lay_batch(q, k, options, args));
  ONEPASS_TRY(check_numbers(options, args));
  const Mask& mask = options.mask;
  if (mask.additive.present()) {
    ONEPASS_TRY(lay_mask("mask.additive", mask.additive, args, false, args.additive));
    ONEPASS_TRY(check_floating("mask.additive", mask.additive));
  }
  if (mask.boolean.present()) {
    ONEPASS_TRY(lay_mask("mask.boolean", mask.boolean, args, false, args.boolean));
    ONEPASS_TRY(check_u8("mask.boolean", mask.boolean));
  }
  ONEPASS_TRY(lay_heads("alibi", options.alibi, args, true, false, args.alibi));
  return lay_heads("sinks", options.sinks, args, false, false, args.sinks);
}

Tokens queries_of(const AttentionArgs& args) {
  return {args.batch, args.heads, args.queries, static_cast<bool>(args.q_offsets)};
}

Tokens keys_of(const AttentionArgs& args) {
  const bool paged = static_cast<bool>(args.pages);
  return {paged ? std::max<std::int64_t>(args.batch, 2) : args.batch, args.kv_heads, args.keys,
          static_cast<bool>(args.kv_offsets)};
}

bool aligned(const Heads& t, const Tokens& of) {
  const auto fits = [&t](std::int64_t stride, std::int64_t extent) {
    return extent == 1 || stride * static_cast<std::int64_t>(size_of(t.dtype)) % 16 == 0;
  };
  return reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0 && fits(t.head, of.heads) &&
         fits(t.token, of.tokens) && fits(t.batch, of.batch);
}

bool strided(const Heads& t, const Tokens& of) {
  return (of.packed || t.batch > 0 || of.batch == 1) && (t.head > 0 || of.heads == 1) &&
         (t.token > 0 || of.tokens == 1);
}

}  // namespace onepass

// Checks of the tensors of attention and its backward, and their layouts: what both share.
#pragma once

#include <string_view>

#include "onepass/attention.hpp"
#include "ops/attention/args.hpp"
#include "rows/tensors.hpp"

namespace onepass {

// q, k, v, o or a gradient: `rank` dimensions, the last dense.
Status check_operand(std::string_view argument, const TensorRef& t, int rank, std::string_view why,
                     bool written);

// Dimensions before the token's are heads and, where there are four, batch (or pages).
Heads lay(const TensorRef& t, int token);

// Checks and lays out q, k and v, and all options but the outputs.
Status lay_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                     const AttentionOptions& options, AttentionArgs& args);

// A tensor that v's dim makes of q's shape: o or its gradient.
Status lay_values(std::string_view argument, const TensorRef& t, const TensorRef& q,
                  const AttentionArgs& args, bool written, Heads& out);

// An optional tensor with one value per query, as the lse.
Status lay_row_values(std::string_view argument, const TensorRef& t, const TensorRef& q,
                      bool written, Heads& out);

// A tensor that broadcasts to batch × heads × queries × keys.
Status lay_mask(std::string_view argument, const TensorRef& t, const AttentionArgs& args,
                bool written, Heads& out);

// An optional tensor with one value per head or, where `batches`, per batch and head.
Status lay_heads(std::string_view argument, const TensorRef& t, const AttentionArgs& args,
                 bool batches, bool written, Heads& out);

// How many of what an operand has one of. In pages `batch` counts at least two of them.
struct Tokens {
  std::int64_t batch, heads, tokens;
  bool packed;  // sequences side by side
};
Tokens queries_of(const AttentionArgs& args);
Tokens keys_of(const AttentionArgs& args);

// Whether every token begins at a multiple of 16 bytes, and whether no two share memory.
bool aligned(const Heads& t, const Tokens& of);
bool strided(const Heads& t, const Tokens& of);

}  // namespace onepass

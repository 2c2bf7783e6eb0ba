// What the drivers of attention and of its backward share: arrays, values, options, and a call's
// tensors as the oracle wants them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cli/ops/call.hpp"
#include "cli/problem/sequences.hpp"
#include "onepass/attention.hpp"
#include "oracle/attention.hpp"

namespace onepass::cli {

// q, k, v, the result y and what options need; the lse is not among them.
std::vector<ArraySpec> attention_arrays(const Case& c);
void fill_attention(Call& call, Random& random);
AttentionOptions attention_options(const Case& c, const Tensors& t);
// Writes the o and lse that a backward reads, of the inputs as they are.
void give_forward(Call& call);

class AttentionView {
 public:
  explicit AttentionView(const Call& call);

  const Sequences& sequences() const { return sequences_; }
  std::int64_t group() const;  // heads that share a kv head

  // The row of an array of q's shape that holds a query.
  std::int64_t query_row(std::int64_t b, std::int64_t h, std::int64_t q) const;
  // The row of k or v that holds a key.
  std::int64_t key_row(std::int64_t b, std::int64_t kv_head, std::int64_t t) const;
  // The element of a tensor mask.
  std::int64_t mask_index(const Tensor& mask, std::int64_t b, std::int64_t h, std::int64_t q,
                          std::int64_t t) const;
  // Row r of an array whose last dimension is `dim`.
  oracle::Row row(array::Id id, std::int64_t r, std::int64_t dim) const;
  // The keys and values of a kv head as far as its sequence's length.
  oracle::Row keys(array::Id id, std::int64_t b, std::int64_t kv_head, std::int64_t dim) const;

  // Of `count` keys from `first` on, what the options make of a query's scores.
  oracle::Scores scores(std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t first,
                        std::int64_t count) const;
  std::optional<double> sink(std::int64_t h) const;

 private:
  const Call& call_;
  const Case& spec_;
  const Sequences sequences_;
  std::vector<std::int64_t> q_first_, k_first_;
};

}  // namespace onepass::cli

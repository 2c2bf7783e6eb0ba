// Select: top-k, sampling and MoE routing. A row is the last dimension.
//
// These ops see the same logits z as softmax (onepass/options.hpp) and never write the softmax to
// memory. Ties go to the lower index. Which elements are selected does not depend on how a row is
// split or on the other rows (docs/numerics.md). A row with a NaN returns NaN, index −1 and valid 0
// and does not affect other rows. On a GPU, a row whose own option or target is invalid returns the
// same, and sample does not support f64.
#pragma once

#include "onepass/context.hpp"
#include "onepass/options.hpp"
#include "onepass/plan.hpp"
#include "onepass/status.hpp"
#include "onepass/tensor.hpp"

namespace onepass {

enum class TopkValues : std::uint8_t {
  probability,      // exp(z − lse)
  log_probability,  // z − lse
  logit,            // z
  renormalized,     // exp(z) / Σ exp(z) over the K selected
};

struct TopkOptions {
  TopkValues values = TopkValues::probability;
  bool sorted = true;  // largest first; false: by index
  PerRow scale = 1.0;
  PerRow temperature = 1.0;
  double softcap = 0;
  Mask mask{};
  Tensor lse{};             // optional output, f32 or f64, x's shape without the last dimension
  ConstTensor target{};     // optional: one token per row, i32 or i64
  Tensor target_logprob{};  // optional output: the target's z − lse
  Tensor target_rank{};     // optional output, i32 or i64: how many tokens rank before the target
  std::string_view variant{};
  Plan* plan = nullptr;
};

// The K largest elements of each row and their indices. K, from 1 to x's last extent, is the last
// extent of `values` (floating) and `indices` (i32 or i64); their other extents are x's.
Status softmax_topk(const Context& context, ConstTensor x, Tensor values, Tensor indices,
                    const TopkOptions& options = {});

// softmax_topk with values = TopkValues::logit.
Status topk(const Context& context, ConstTensor x, Tensor values, Tensor indices,
            TopkOptions options = {});

// One integer for all rows, or an i32 or i64 tensor with one per row.
struct PerRowInteger {
  std::int64_t value = 0;
  ConstTensor rows{};

  PerRowInteger(std::int64_t all) : value(all) {}
  PerRowInteger(ConstTensor each) : rows(each) {}
  PerRowInteger(Tensor each) : rows(each) {}
};

// A token must pass every filter: top_k, then top_p among what top_k keeps, and min_p relative to
// the likeliest token.
struct SampleOptions {
  PerRow temperature = 1.0;  // 0: greedy, the likeliest token
  PerRowInteger top_k = 0;   // keeps the k likeliest tokens; 0: all
  PerRow top_p = 1.0;  // keeps the fewest of the likeliest that reach this probability; 1: all
  PerRow min_p = 0.0;  // keeps tokens of at least min_p times the largest probability; 0: all
  // A row's draw depends on its logits, seed and offset alone. Given one seed for all rows, each
  // row derives its own from its number.
  PerRowInteger seed = 0;
  PerRowInteger offset = 0;
  PerRow scale = 1.0;
  double softcap = 0;
  Mask mask{};
  Tensor logprob{};  // optional output: the token's z − lse before any filter; a temperature of 0
                     // counts as 1
  Tensor valid{};    // optional output, u8: 0 for a row with a NaN or no token to draw
  std::string_view variant{};
  Plan* plan = nullptr;
};

// Draws one token per row from the probabilities that the filters leave. `token` is i32 or i64, −1
// where the row is not valid.
Status sample(const Context& context, ConstTensor x, Tensor token,
              const SampleOptions& options = {});

enum class GateScore : std::uint8_t { softmax, sigmoid };

struct GateOptions {
  GateScore score = GateScore::softmax;
  ConstTensor bias{};  // optional, one per expert: added to the scores for the selection alone
  bool renormalize = false;  // divides the K weights by their sum
  double scale = 1;          // multiplies the weights
  std::string_view variant{};
  Plan* plan = nullptr;
};

// MoE routing: the K experts with the largest score + bias per token, largest first, and their
// scores, without the bias, as weights. K is the last extent of `weights` (floating) and `experts`
// (i32 or i64).
Status gate(const Context& context, ConstTensor scores, Tensor weights, Tensor experts,
            const GateOptions& options = {});

}  // namespace onepass

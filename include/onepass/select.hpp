// Ops that choose from a row: the largest, a sample, the experts of a gate. The row is
// the last dimension.
//
// They see the same logits z as softmax does (onepass/options.hpp) and never write the row out. Of
// equal elements the one with the lower index comes first, always; what is chosen does not depend
// on how a row was cut or what other rows there are (docs/numerics.md). A row with a NaN answers
// with NaN, index −1 and valid 0, and touches no other. On a GPU, a row whose own option or target
// cannot be is answered in the same way; sample takes no f64 there.
#pragma once

#include "onepass/context.hpp"
#include "onepass/options.hpp"
#include "onepass/status.hpp"
#include "onepass/tensor.hpp"

namespace onepass {

enum class TopkValues : std::uint8_t {
  probability,      // exp(z − lse)
  log_probability,  // z − lse
  logit,            // z
  renormalized,     // exp(z) over the sum of the K chosen
};

struct TopkOptions {
  TopkValues values = TopkValues::probability;
  bool sorted = true;  // from the largest down; else by index
  PerRow scale = 1.0;
  PerRow temperature = 1.0;
  double softcap = 0;
  Mask mask{};
  Tensor lse{};             // optional output, f32 or f64, x's shape without the last dimension
  ConstTensor target{};     // optional: a token a row, i32 or i64
  Tensor target_logprob{};  // its z − lse
  Tensor target_rank{};     // and how many tokens come before it, i32 or i64
  std::string_view variant{};
  Plan* plan = nullptr;
};

// The K largest of each row and where they are, K being the last extent of `values` (floating) and
// `indices` (i32 or i64); their other extents are x's. K is from 1 to x's last extent.
Status softmax_topk(const Context& context, ConstTensor x, Tensor values, Tensor indices,
                    const TopkOptions& options = {});

// The same with values = TopkValues::logit.
Status topk(const Context& context, ConstTensor x, Tensor values, Tensor indices,
            TopkOptions options = {});

// One integer for all rows, or an i32 or i64 tensor with one a row.
struct PerRowInteger {
  std::int64_t value = 0;
  ConstTensor rows{};

  PerRowInteger(std::int64_t all) : value(all) {}
  PerRowInteger(ConstTensor each) : rows(each) {}
  PerRowInteger(Tensor each) : rows(each) {}
};

// A token is taken out when one of the filters takes it out: top_k first, then top_p of what is
// left, min_p against the likeliest.
struct SampleOptions {
  PerRow temperature = 1.0;  // 0: the likeliest token
  PerRowInteger top_k = 0;   // the k likeliest; 0: all
  PerRow top_p = 1.0;        // as few of the likeliest as have this probability together; 1: all
  PerRow min_p = 0.0;        // at least this part of the likeliest one's probability; 0: all
  PerRowInteger seed = 0;  // a row's draw depends on its logits, seed and offset and nothing else;
  PerRowInteger offset = 0;  // of one seed for all rows each makes another by its number
  PerRow scale = 1.0;
  double softcap = 0;
  Mask mask{};
  Tensor logprob{};  // optional: the token's z − lse, before any filter; temperature 0 counts as 1
  Tensor valid{};    // optional, u8: 0 where the row has a NaN or nothing to choose from
  std::string_view variant{};
  Plan* plan = nullptr;
};

// A token of each row, drawn with the probabilities that the filters leave; i32 or i64, −1
// where not valid.
Status sample(const Context& context, ConstTensor x, Tensor token,
              const SampleOptions& options = {});

enum class GateScore : std::uint8_t { softmax, sigmoid };

struct GateOptions {
  GateScore score = GateScore::softmax;
  ConstTensor
      bias{};  // optional, one an expert: added to the scores to choose by, not to the weights
  bool renormalize = false;  // the chosen weights add up to 1
  double scale = 1;          // a factor of the weights
  std::string_view variant{};
  Plan* plan = nullptr;
};

// The experts of each token: the K with the largest score (and bias), largest first, and their
// scores as weights. K is the last extent of `weights` (floating) and `experts` (i32 or i64).
Status gate(const Context& context, ConstTensor scores, Tensor weights, Tensor experts,
            const GateOptions& options = {});

}  // namespace onepass

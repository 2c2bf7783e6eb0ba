// The reference: float64, compensated sums, one row at a time, written to be obviously right.
// Depends on nothing else in the tree, so that a bug cannot stand on both sides of a comparison.
#pragma once

#include <cstdint>
#include <vector>

namespace oracle {

using Row = std::vector<double>;

// Which elements take part. Empty: all.
using Keep = std::vector<bool>;

// How z is made from x: z = softcap(x·scale)/temperature + additive, and −inf where not kept.
struct Transform {
  double scale = 1;
  double temperature = 1;
  double softcap = 0;
  Row additive;  // empty: none
  Keep keep;     // empty: all
};

Row logits(const Row& x, const Transform& transform);

// Whether query q of `queries` sees key c of `keys`: bottom-right aligned.
bool causal_keeps(std::int64_t q, std::int64_t c, std::int64_t queries, std::int64_t keys);
// The same for a window of `left` keys before and `right` after the query's own; −1: no limit.
bool window_keeps(std::int64_t q, std::int64_t c, std::int64_t queries, std::int64_t keys,
                  std::int64_t left, std::int64_t right);

double logsumexp(const Row& z);
Row softmax(const Row& z);
Row log_softmax(const Row& z);

// Gradients in x. `y` is what the forward returned; `x` is read only for the softcap's slope.
Row softmax_backward(const Row& y, const Row& dy, const Row& x, const Transform& transform);
Row log_softmax_backward(const Row& y, const Row& dy, const Row& x, const Transform& transform);

struct Loss {
  std::int64_t target = 0;
  double label_smoothing = 0;
  double z_loss = 0;
  Row weight{};         // of the classes; empty: 1
  Row probabilities{};  // what the target says of each class; empty: `target` is the one
};

// The factor of each class's −log p: what the target says, and what label smoothing spreads over
// the classes with z > −inf.
Row labels(const Row& z, const Loss& loss);

double cross_entropy(const Row& z, const Loss& loss);
Row cross_entropy_backward(const Row& x, const Transform& transform, const Loss& loss,
                           double dloss);

// Where the k largest are, largest first; of equal ones the lower index first.
std::vector<std::int64_t> largest(const Row& z, std::int64_t k);
// How many elements come before one in that order.
std::int64_t rank(const Row& z, std::int64_t index);

// What filters leave of a row's probabilities, adding up to 1: the top_k largest (0: all), of
// these as few of the largest as have top_p of their probability, and of these what has at least
// min_p of the largest's.
Row filtered(const Row& z, std::int64_t top_k, double top_p, double min_p);

// Neumaier's sum.
double sum(const Row& values);

}  // namespace oracle

// Attention weights: softmax over the keys of each query, scaled, and causal.

#include <onepass/onepass.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

int main() {
  constexpr std::int64_t queries = 4, keys = 6;
  constexpr double scale = 0.125;

  std::vector<float> scores(queries * keys), weights(queries * keys);
  for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = 10 * std::sin(static_cast<float>(i));

  const onepass::Context context = onepass::Context::cpu();
  const onepass::Tensor x{scores.data(), onepass::DType::f32, {queries, keys}};
  const onepass::Tensor y{weights.data(), onepass::DType::f32, {queries, keys}};

  const onepass::Status status =
      onepass::softmax(context, x, y, {.scale = scale, .mask = onepass::causal()});
  if (!status.ok()) {
    std::fprintf(stderr, "softmax: %s\n", status.message().c_str());
    return 1;
  }

  // The same by the textbook: the last query sees every key, each earlier one a key less.
  bool right = true;
  for (std::int64_t q = 0; q < queries; ++q) {
    const std::int64_t visible = q + 1 + keys - queries;
    double sum = 0;
    for (std::int64_t k = 0; k < visible; ++k) sum += std::exp(scale * scores[q * keys + k]);
    for (std::int64_t k = 0; k < keys; ++k) {
      const double expected = k < visible ? std::exp(scale * scores[q * keys + k]) / sum : 0;
      right = right && std::fabs(weights[q * keys + k] - expected) < 1e-6;
      std::printf("%7.4f", weights[q * keys + k]);
    }
    std::printf("\n");
  }
  std::printf("%s\n", right ? "as in the textbook" : "WRONG: not as in the textbook");
  return right ? 0 : 1;
}

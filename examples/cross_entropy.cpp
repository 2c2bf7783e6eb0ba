// One training step's loss and gradient: cross-entropy of logits and class indices,
// one row ignored.

#include <onepass/onepass.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

bool succeeded(const char* what, const onepass::Status& status) {
  if (!status.ok()) std::fprintf(stderr, "%s: %s\n", what, status.message().c_str());
  return status.ok();
}

}  // namespace

int main() {
  constexpr std::int64_t rows = 4, classes = 1000, ignored = -100;

  std::vector<float> logits(rows * classes), gradient(rows * classes), lse(rows);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = 5 * std::sin(static_cast<float>(i));
  std::vector<std::int64_t> target{7, 999, ignored, 0};
  float loss = 0, one = 1;

  const onepass::Context context = onepass::Context::cpu();
  const onepass::Tensor x{logits.data(), onepass::DType::f32, {rows, classes}};
  const onepass::Tensor dx{gradient.data(), onepass::DType::f32, {rows, classes}};
  const onepass::Tensor classes_of_rows{target.data(), onepass::DType::i64, {rows}};
  const onepass::Tensor lse_of_rows{lse.data(), onepass::DType::f32, {rows}};

  // The forward leaves each row's log-sum-exp, which saves the backward a pass over the logits.
  const onepass::CrossEntropyOptions options{.ignore_index = ignored,
                                             .reduction = onepass::Reduction::mean};
  onepass::CrossEntropyOptions forward = options;
  forward.lse = lse_of_rows;
  if (!succeeded("cross_entropy",
                 onepass::cross_entropy(context, x, classes_of_rows,
                                        {&loss, onepass::DType::f32, {1}}, forward)) ||
      !succeeded("cross_entropy_backward",
                 onepass::cross_entropy_backward(context, x, classes_of_rows, lse_of_rows,
                                                 {&one, onepass::DType::f32, {1}}, dx, options))) {
    return 1;
  }

  // The same by the textbook; three of the four rows count.
  bool right = true;
  double expected_loss = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* row = &logits[r * classes];
    const double weight = target[r] == ignored ? 0.0 : 1.0 / 3;
    double sum = 0;
    for (std::int64_t c = 0; c < classes; ++c) sum += std::exp(static_cast<double>(row[c]));
    if (target[r] != ignored) expected_loss += weight * (std::log(sum) - row[target[r]]);
    for (std::int64_t c = 0; c < classes; ++c) {
      const double hit = c == target[r] ? 1 : 0;
      const double expected = weight * (std::exp(static_cast<double>(row[c])) / sum - hit);
      right = right && std::fabs(gradient[r * classes + c] - expected) < 1e-6;
    }
  }
  right = right && std::fabs(loss - expected_loss) < 1e-5 * expected_loss;
  std::printf("loss %.6f, %s\n", loss,
              right ? "as in the textbook" : "WRONG: not as in the textbook");
  return right ? 0 : 1;
}

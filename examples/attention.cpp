// Attention over a long context in two halves: each gives o and lse, and the two merge to what one
// call would give.

#include <onepass/onepass.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

int main() {
  constexpr std::int64_t heads = 4, kv_heads = 2, keys = 100, half = 60, dim = 32;

  std::vector<float> queries(heads * dim), cache(2 * kv_heads * keys * dim);
  for (std::size_t i = 0; i < queries.size(); ++i) queries[i] = std::sin(static_cast<float>(i));
  for (std::size_t i = 0; i < cache.size(); ++i) cache[i] = std::cos(static_cast<float>(3 * i));
  float* const values = cache.data() + kv_heads * keys * dim;

  // Keys from `first` on: a view of the cache, whose heads lie `keys` tokens apart.
  const auto tokens = [&](float* data, std::int64_t first, std::int64_t count) {
    return onepass::Tensor{data + first * dim,
                           onepass::DType::f32,
                           {1, kv_heads, count, dim},
                           {kv_heads * keys * dim, keys * dim, dim, 1}};
  };
  struct Result {
    std::vector<float> o = std::vector<float>(heads * dim), lse = std::vector<float>(heads);
    onepass::Tensor outputs() { return {o.data(), onepass::DType::f32, {1, heads, 1, dim}}; }
    onepass::Tensor lses() { return {lse.data(), onepass::DType::f32, {1, heads, 1}}; }
  };
  const onepass::Context context = onepass::Context::cpu();
  const onepass::Tensor q{queries.data(), onepass::DType::f32, {1, heads, 1, dim}};
  const auto attend = [&](std::int64_t first, std::int64_t count, Result& result) {
    return onepass::attention(context, q, tokens(cache.data(), first, count),
                              tokens(values, first, count), result.outputs(),
                              {.lse = result.lses()});
  };

  Result whole, left, right;
  const onepass::Status steps[] = {
      attend(0, keys, whole), attend(0, half, left), attend(half, keys - half, right),
      onepass::merge_attention(context, left.outputs(), left.lses(), right.outputs(), right.lses(),
                               left.outputs(), left.lses())};
  for (const onepass::Status& status : steps) {
    if (status.ok()) continue;
    std::fprintf(stderr, "attention: %s\n", status.message().c_str());
    return 1;
  }

  bool same = true;
  for (std::size_t i = 0; i < whole.o.size(); ++i) {
    same = same && std::fabs(whole.o[i] - left.o[i]) < 1e-6;
  }
  for (std::int64_t h = 0; h < heads; ++h) {
    std::printf("head %d: lse %.4f\n", static_cast<int>(h), whole.lse[static_cast<std::size_t>(h)]);
  }
  std::printf("%s\n", same ? "two halves make the whole" : "WRONG: two halves are not the whole");
  return same ? 0 : 1;
}

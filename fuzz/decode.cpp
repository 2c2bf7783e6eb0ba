#include "fuzz/decode.hpp"

#include <algorithm>
#include <limits>

#include "cli/ops/call.hpp"
#include "cli/problem/fill.hpp"
#include "cli/problem/sequences.hpp"
#include "dispatch/choose.hpp"
#include "dispatch/variant.hpp"
#include "fuzz/target.hpp"

namespace onepass::fuzz {
namespace {

using cli::Case;

constexpr std::int64_t kFarthest = std::numeric_limits<std::int64_t>::max();

// Elements of a tensor: enough for every path of a row, seldom enough for many threads.
std::int64_t most_elements(Bytes& bytes) {
  if (bytes.one_in(128)) return 1 << 15;
  return bytes.one_in(16) ? 1 << 13 : 1 << 10;
}

// Near the sizes at which kernels change their ways.
std::int64_t extent(Bytes& bytes, std::int64_t most) {
  constexpr std::int64_t edges[] = {16,   32,   64,   128,  256,   512,
                                    1024, 2048, 4096, 8192, 16384, 32768};
  if (!bytes.one_in(4)) return std::min(bytes.below(48), most);
  const std::int64_t edge = bytes.pick(edges);
  return std::min(edge + bytes.from(-2, 2), most);
}

DType floating(Bytes& bytes) {
  return bytes.pick({DType::f32, DType::f16, DType::bf16, DType::f64});
}

void decode_shape(Bytes& bytes, Case& c) {
  const std::int64_t rank = bytes.one_in(16) ? bytes.from(1, kMaxRank) : bytes.from(1, 3);
  c.axis = static_cast<int>(bytes.one_in(4) ? bytes.below(2 * rank) - rank : -1);
  std::int64_t left = most_elements(bytes);
  c.shape.assign(static_cast<std::size_t>(rank), 1);
  auto& cols = c.shape[static_cast<std::size_t>(c.axis_index())];
  cols = extent(bytes, left);
  left /= std::max<std::int64_t>(cols, 1);
  for (std::int64_t& each : c.shape) {
    if (&each == &cols) continue;
    each = std::min(bytes.one_in(4) ? extent(bytes, left) : bytes.from(1, 5), left);
    left /= std::max<std::int64_t>(each, 1);
  }
}

void decode_masks(Bytes& bytes, Case& c) {
  const std::uint8_t which = bytes.byte();
  c.additive = (which & 1) != 0;
  c.boolean = (which & 2) != 0;
  c.lengths = (which & 4) != 0;
  c.causal = (which & 8) != 0;
  c.broadcast = (which & 16) != 0 && (c.additive || c.boolean);
  if ((which & 32) != 0) c.window_left = bytes.one_in(16) ? kFarthest : bytes.below(40);
  if ((which & 64) != 0) c.window_right = bytes.one_in(16) ? kFarthest : bytes.below(40);
}

void decode_logits(Bytes& bytes, Case& c) {
  c.scale = bytes.pick({1.0, 0.5, -1.0, 2.0, 0.0, -0.125});
  c.scale_rows = bytes.one_in(8);
  c.temperature = bytes.pick({1.0, 0.5, 2.0, 0.0625, 64.0});
  c.temperature_rows = bytes.one_in(8);
  c.softcap = bytes.pick({0.0, 0.0, 30.0, 1.0, 0.5});
}

void decode_loss(Bytes& bytes, Case& c) {
  c.smoothing = bytes.pick({0.0, 0.0, 0.125, 0.5});
  c.z_loss = bytes.pick({0.0, 0.0, 0.0001, 0.5});
  c.ignore = bytes.one_in(2);
  c.reduction = bytes.pick({Reduction::none, Reduction::sum, Reduction::mean});
  c.loss = c.op == Op::cross_entropy_backward && bytes.one_in(2);
}

void decode_choice(Bytes& bytes, Case& c) {
  c.index = bytes.one_in(2) ? DType::i32 : DType::i64;
  const std::int64_t cols = c.cols();
  c.k = std::clamp<std::int64_t>(extent(bytes, cols), 1, std::max<std::int64_t>(cols, 1));
  if (c.op == Op::topk) {
    c.values = bytes.pick({TopkValues::probability, TopkValues::log_probability, TopkValues::logit,
                           TopkValues::renormalized});
    c.unsorted = bytes.one_in(2);
    c.target = cols > 0 && bytes.one_in(3);
  } else if (c.op == Op::sample) {
    if (bytes.one_in(4)) c.temperature = 0;
    c.top_k = bytes.one_in(2) ? bytes.pick({std::int64_t{1}, cols, kFarthest, bytes.below(64)}) : 0;
    c.top_p = bytes.pick({1.0, 0.9, 0.5, 0.001});
    c.min_p = bytes.pick({0.0, 0.05, 0.5, 1.0});
  } else {
    c.score = bytes.one_in(2) ? GateScore::sigmoid : GateScore::softmax;
    c.bias = bytes.one_in(2);
    c.renormalize = bytes.one_in(2);
    c.scale = bytes.pick({1.0, 2.5, 0.0, -1.0});
  }
}

void decode_rows(Bytes& bytes, Case& c) {
  c.in = floating(bytes);
  c.out = bytes.one_in(3) ? floating(bytes) : c.in;
  decode_shape(bytes, c);
  if (selects(c.op)) {
    c.axis = -1;
    if (c.op != Op::sample)
      c.shape.back() = std::max<std::int64_t>(c.shape.back(), 1);  // K is 1 at least
    if (c.op != Op::gate) decode_logits(bytes, c);
    if (c.op != Op::gate) decode_masks(bytes, c);
    c.lse = c.op == Op::topk && bytes.one_in(2);
    return decode_choice(bytes, c);
  }
  decode_logits(bytes, c);
  decode_masks(bytes, c);
  const bool backward = c.op == Op::softmax_backward || c.op == Op::log_softmax_backward;
  c.lse = c.op != Op::logsumexp && !backward && bytes.one_in(2);
  if (c.op == Op::cross_entropy || c.op == Op::cross_entropy_backward) decode_loss(bytes, c);
  c.in_place = c.in == c.out && traffic(c.op).writes > 0 && bytes.one_in(3);
}

void decode_attention(Bytes& bytes, Case& c) {
  c.in = bytes.pick({DType::f32, DType::f16, DType::bf16});
  c.out = bytes.one_in(3) ? bytes.pick({DType::f32, DType::f16, DType::bf16}) : c.in;
  const std::int64_t most = 2 * most_elements(bytes);
  const std::int64_t kv_heads = bytes.one_in(3) ? bytes.below(4) : 1;
  const std::int64_t heads = kv_heads * (bytes.one_in(3) ? bytes.from(1, 9) : 1);
  const std::int64_t dim = 8 * (bytes.one_in(8) ? bytes.from(1, 64) : bytes.from(1, 16));
  const std::int64_t tokens =
      std::max<std::int64_t>(most / (dim * std::max<std::int64_t>(heads, 1)), 4);
  const std::int64_t queries = bytes.one_in(4) ? extent(bytes, tokens) : bytes.from(1, 8);
  c.shape = {bytes.one_in(3) ? bytes.below(5) : 1, heads, std::min(queries, tokens), dim};
  c.keys = bytes.one_in(4) ? c.shape[2] : extent(bytes, tokens * 2);
  c.kv_heads = kv_heads;
  c.dim_v = dim;
  c.scale = bytes.pick({cli::usual_scale(c), 1.0, 0.5, -0.25, 0.0});
  c.softcap = bytes.pick({0.0, 0.0, 20.0, 1.0});
  decode_masks(bytes, c);
  c.lse = bytes.one_in(2);
  c.alibi = bytes.one_in(4);
  c.sinks = bytes.one_in(4);
  c.ragged = bytes.one_in(3);
  c.page = bytes.one_in(4)
               ? bytes.pick({std::int64_t{16}, std::int64_t{1}, std::int64_t{7}, std::int64_t{64}})
               : 0;
  c.split = bytes.one_in(3) ? bytes.pick({std::int64_t{1}, std::int64_t{64}, std::int64_t{16},
                                          bytes.below(200), kFarthest})
                            : 0;
}

// The forward's options, and what only its gradients have.
void decode_attention_backward(Bytes& bytes, Case& c) {
  decode_attention(bytes, c);
  c.page = c.split = 0;
  c.lse = false;  // it always is an input
  c.d_lse = bytes.one_in(3);
  c.d_sinks = c.sinks && bytes.one_in(2);
  c.d_additive = c.additive && bytes.one_in(2);
  c.accumulate = bytes.one_in(3);
  if (device == Device::cpu && bytes.one_in(8)) c.in = DType::f64;
  if (device == Device::cpu && bytes.one_in(8)) c.dim_v = 8 * bytes.from(1, 16);
  c.out = bytes.one_in(3) ? DType::f32 : c.in;
}

// Seldom one by name: the dispatcher's own choice is what users get.
void decode_variant(Bytes& bytes, Case& c) {
  c.device = device;
  c.threads = device == Device::cpu ? static_cast<int>(bytes.from(1, 3)) : 0;
  if (!bytes.one_in(4)) return;
  std::vector<std::string> names;
  for (const Variant& v : variants(c.op)) {
    if (v.device == device) names.emplace_back(v.name);
  }
  Machine machine{};
  if (device == Device::cuda && cli::machine_of(c, machine).ok()) {
    Problem problem;
    std::vector<std::string> launches;
    if (cli::describe(c, problem).ok()) launches = launch_names(problem, machine);
    names.insert(names.end(), launches.begin(), launches.end());
  }
  if (!names.empty()) c.variant = bytes.pick(names);
}

// Logits of the largest elements must be numbers: past its range a type has its own answer, and
// the oracle another.
void stay_in_range(Case& c) {
  c.scale = std::clamp(c.scale, -1.0, 1.0);
  c.temperature = std::max(c.temperature, c.temperature == 0 ? 0.0 : 1.0);
  c.scale_rows = c.temperature_rows = false;
  c.z_loss = 0;
  if (c.in == DType::f64) c.smoothing = 0;  // the oracle's range is no wider
}

// On a GPU q·k may overflow, and a backward multiplies what is hidden (docs/numerics.md).
bool suits_gpu(const Case& c) {
  const auto is_one_of = [&](std::initializer_list<std::string_view> fills) {
    return std::ranges::find(fills, c.fill) != fills.end();
  };
  if (attends(c.op) && c.fill == "extremes") return false;
  return c.op != Op::attention_backward ||
         !is_one_of({"all_minus_inf", "some_minus_inf", "nan", "plus_inf"});
}

}  // namespace

Case decode_case(Bytes& bytes) {
  Case c;
  c.op = bytes.pick(kAllOps);
  c.seed = bytes.bits(2);
  const auto fills = cli::fills();
  c.fill = bytes.one_in(2) ? bytes.pick(fills).name : fills.front().name;
  switch (c.op) {
    case Op::attention: decode_attention(bytes, c); break;
    case Op::attention_backward: decode_attention_backward(bytes, c); break;
    default: decode_rows(bytes, c);
  }
  if (c.fill == "extremes") stay_in_range(c);
  if (device == Device::cuda && !suits_gpu(c)) c.fill = fills.front().name;
  c.batch_invariant = bytes.one_in(8) && c.op != Op::attention_backward;
  decode_variant(bytes, c);
  return c;
}

}  // namespace onepass::fuzz

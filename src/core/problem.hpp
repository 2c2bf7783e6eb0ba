// What the dispatcher knows about a call: plain facts, no pointers.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "onepass/tensor.hpp"

namespace onepass {

enum class Op : std::uint8_t {
  softmax,
  log_softmax,
  logsumexp,
  softmax_backward,
  log_softmax_backward,
  cross_entropy,
  cross_entropy_backward,
  topk,  // topk to gate: the select ops
  sample,
  gate,
  attention,
  attention_backward,
};

inline constexpr std::array kAllOps = {
    Op::softmax,
    Op::log_softmax,
    Op::logsumexp,
    Op::softmax_backward,
    Op::log_softmax_backward,
    Op::cross_entropy,
    Op::cross_entropy_backward,
    Op::topk,
    Op::sample,
    Op::gate,
    Op::attention,
    Op::attention_backward,
};

// The select ops, and the row ops, which come before them.
constexpr bool attends(Op op) { return op >= Op::attention; }
constexpr bool selects(Op op) { return op >= Op::topk && op <= Op::gate; }
inline constexpr std::array kRowOps = [] {
  std::array<Op, static_cast<std::size_t>(Op::topk)> ops{};
  for (std::size_t i = 0; i < ops.size(); ++i) ops[i] = kAllOps[i];
  return ops;
}();

constexpr std::string_view name(Op op) {
  switch (op) {
    case Op::softmax: return "softmax";
    case Op::log_softmax: return "log_softmax";
    case Op::logsumexp: return "logsumexp";
    case Op::softmax_backward: return "softmax_backward";
    case Op::log_softmax_backward: return "log_softmax_backward";
    case Op::cross_entropy: return "cross_entropy";
    case Op::cross_entropy_backward: return "cross_entropy_backward";
    case Op::topk: return "topk";
    case Op::sample: return "sample";
    case Op::gate: return "gate";
    case Op::attention: return "attention";
    case Op::attention_backward: return "attention_backward";
  }
  return "?";
}

// Null where no op has that name.
constexpr const Op* op_named(std::string_view text) {
  for (const Op& op : kAllOps) {
    if (name(op) == text) return &op;
  }
  return nullptr;
}

// What an attention's plan depends on beside its dtypes.
struct AttentionFacts {
  std::int64_t batch = 0;
  std::int64_t heads = 0, kv_heads = 0;
  std::int64_t queries = 0;  // per sequence; with offsets, of all sequences together
  std::int64_t keys = 0;     // likewise
  int dim = 0;               // of q and k
  int dim_v = 0;             // of v and o; 0: as dim
  std::int64_t page = 0;     // keys per page; 0: not paged
  std::int64_t window_left = -1, window_right = -1;
  std::int64_t split = 0;  // keys per split-KV partition, as the caller asked
  bool causal = false, lengths = false, q_offsets = false, kv_offsets = false;
  bool softcap = false, additive = false, boolean = false, alibi = false, sinks = false;
  bool aligned = false;  // every token of all operands begins at a multiple of 16 bytes
  bool strided = true;   // no two tokens of an operand share memory

  // Of the backward.
  bool d_lse = false, d_sinks = false, d_additive = false;
  bool accumulates = false;    // adds to the gradients
  bool deterministic = false;  // the same bits on every run

  bool operator==(const AttentionFacts&) const = default;

  constexpr std::int64_t group() const { return kv_heads == 0 ? 1 : heads / kv_heads; }
  constexpr int value_dim() const { return dim_v == 0 ? dim : dim_v; }
  constexpr bool one_dim() const { return value_dim() == dim; }
};

// In attention a row is one query of one head, and `cols` are its keys.
struct Problem {
  Op op = Op::softmax;
  std::int64_t rows = 0;
  std::int64_t cols = 0;  // elements along the axis
  std::int64_t k = 0;     // elements selected per row; for sample, candidates
  DType in = DType::f32;
  DType out = DType::f32;
  bool unit_stride = true;  // elements of a row are adjacent in memory, in input and output
  bool unit_rows = false;   // rows are adjacent instead: element c of row r + 1 follows that of r
  // Every row of the input begins at a multiple of 16 bytes, or its elements are not adjacent.
  bool aligned_rows = false;
  bool packed_rows = false;   // softmax and log_softmax: rows are whole 16-byte packs, in and out
  bool even_rows = true;      // row r is r strides from row 0: the rows have one dimension
  bool mixed_inputs = false;  // the inputs of a backward differ in dtype
  bool plain = true;        // z = x: no scale, temperature, softcap, tensor mask or label smoothing
  bool only_scaled = true;  // like plain, but with a positive scale and a temperature
  bool whole_rows = true;   // no length, causal or window mask
  bool wants_lse = false;   // or, in topk, a target's log-probability
  bool weighs = true;       // topk: values are probabilities, not logits or logarithms
  bool textbook = true;     // topk: sorted probabilities and i64 indices, both dense
  bool gives_loss = false;  // a backward that also writes the loss
  bool reduced = false;     // losses are reduced to one, or the gradient comes from a reduced one
  bool weighted = false;    // cross-entropy: with class weights or probabilities as the target
  int probability_bytes = 0;  // bytes per target probability; 0: targets are indices
  bool in_place = false;
  bool batch_invariant = false;  // the plan of a row depends on its columns alone
  AttentionFacts attention{};

  bool operator==(const Problem&) const = default;
};

// Everything but float64 accumulates in float32.
constexpr DType compute_type(DType in) { return in == DType::f64 ? DType::f64 : DType::f32; }

// How many tensors of rows × cols an op reads and writes.
struct Traffic {
  int reads;
  int writes;
};

constexpr Traffic traffic(Op op) {
  switch (op) {
    case Op::softmax:
    case Op::log_softmax:
    case Op::cross_entropy_backward: return {1, 1};
    case Op::logsumexp:
    case Op::cross_entropy:
    case Op::topk:
    case Op::sample:
    case Op::gate: return {1, 0};
    case Op::softmax_backward:
    case Op::log_softmax_backward: return {2, 1};
    case Op::attention:
    case Op::attention_backward: return {0, 0};  // never write their scores to memory
  }
  return {1, 1};
}

// The tokens of q, and of k, in the whole batch.
constexpr double query_tokens(const AttentionFacts& a) {
  return static_cast<double>(a.queries) * (a.q_offsets ? 1 : static_cast<double>(a.batch));
}

constexpr double key_tokens(const AttentionFacts& a) {
  return static_cast<double>(a.keys) * (a.kv_offsets ? 1 : static_cast<double>(a.batch));
}

constexpr double attention_bytes(const Problem& p) {
  const AttentionFacts& a = p.attention;
  const double queries = query_tokens(a) * static_cast<double>(a.heads);
  const double kv = key_tokens(a) * static_cast<double>(a.kv_heads) * (a.dim + a.value_dim());
  if (p.op == Op::attention_backward) {  // o and do are inputs, too
    const double q = queries * a.dim;
    return (q + kv + 2 * queries * a.value_dim()) * static_cast<double>(size_of(p.in)) +
           (q + kv) * static_cast<double>(size_of(p.out)) * (a.accumulates ? 2 : 1);
  }
  return (queries * a.dim + kv) * static_cast<double>(size_of(p.in)) +
         queries * a.value_dim() * static_cast<double>(size_of(p.out));
}

// The fewest bytes an op can move: it reads each input element once and writes each output element
// once.
constexpr double least_bytes(const Problem& p) {
  if (attends(p.op)) return attention_bytes(p);
  const Traffic t = traffic(p.op);
  return static_cast<double>(p.rows) * static_cast<double>(p.cols) *
         (t.reads * static_cast<double>(size_of(p.in)) + p.probability_bytes +
          t.writes * static_cast<double>(size_of(p.out)));
}

}  // namespace onepass

// A case: one call, written as a line of text. Workload files, `verify`, `bench` and `explain` all
// speak it, and a failure prints the one that reproduces it.
//
//     softmax 4096x4096 f16:f32 axis=0 temperature=row mask=causal+lengths lse seed=7
//     attention 2x8x1024x64 bf16 keys=2048 kv_heads=2 mask=causal window=128,0 page=16 bshd lse
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/machine.hpp"
#include "core/problem.hpp"
#include "onepass/options.hpp"
#include "onepass/select.hpp"
#include "onepass/status.hpp"

namespace onepass::cli {

struct Case {
  Op op = Op::softmax;
  std::vector<std::int64_t> shape = {1, 1};
  DType in = DType::f32;
  DType out = DType::f32;
  int axis = -1;

  double scale = 1;
  bool scale_rows = false;  // one a row, drawn at random around `scale`
  double temperature = 1;
  bool temperature_rows = false;
  double softcap = 0;
  bool additive = false, boolean = false, lengths = false, causal = false;
  bool broadcast = false;  // tensor masks hold one row for all; of attention, queries × keys
  std::int64_t window_left = -1, window_right = -1;
  bool lse = false;  // an output of forwards, an input of cross_entropy_backward without the loss

  double smoothing = 0;
  double z_loss = 0;
  bool ignore = false;         // some targets are ignore_index
  bool weights = false;        // one a class
  bool probabilities = false;  // targets are the classes' probabilities
  bool loss = false;           // of cross_entropy_backward: the loss, too, in the same read
  Reduction reduction = Reduction::none;

  std::int64_t k = 1;  // topk, gate: how many are chosen
  TopkValues values = TopkValues::probability;
  bool unsorted = false;
  bool target = false;       // of topk: a target, its log-probability and rank
  DType index = DType::i64;  // of what is chosen
  std::int64_t top_k = 0;    // sample: the filters
  double top_p = 1, min_p = 0;
  std::uint64_t draw = 0;  // of all that a seed can draw
  GateScore score = GateScore::softmax;
  bool bias = false, renormalize = false;

  // Of attention, whose shape is batch × heads × queries × dim. parse_case sets what is left out.
  std::int64_t keys = -1;      // left out: as many as queries
  std::int64_t kv_heads = -1;  // left out: as many as heads
  std::int64_t dim_v = -1;     // of v and o; left out: as of q
  std::int64_t page = 0;       // keys per page; 0: side by side
  std::int64_t split = 0;
  bool alibi = false, sinks = false;
  bool ragged = false;  // `offsets`: sequences of different lengths side by side
  bool bshd = false;    // a token's heads are neighbours in memory
  // Of its backward.
  bool d_lse = false, d_sinks = false, d_additive = false;
  bool accumulate = false;

  bool in_place = false;
  bool batch_invariant = false;
  std::int64_t pad = 0;     // elements between the end of the last dimension and its next start
  std::int64_t step = 1;    // stride of the last dimension
  std::int64_t offset = 0;  // elements past an aligned address
  std::int64_t out_offset = -1;  // the same of the output; −1: as the input

  std::string variant;          // empty: the dispatcher's choice
  Device device = Device::cpu;  // a named variant's own
  std::string isa;              // of a CPU; empty: the best
  int threads = 0;              // of a CPU; 0: all
  std::string fill = "random";
  std::uint64_t seed = 1;

  bool operator==(const Case&) const = default;

  std::int64_t axis_index() const;  // 0 … rank − 1
  std::int64_t cols() const;
  std::int64_t rows() const;
  std::vector<std::int64_t> row_shape() const;  // without the axis, where there is one
};

// An op by its name. An error names the nearest that there is.
Status parse_op(std::string_view text, Op& out);

// Without an op in the text, that of `out` stays.
Status parse_case(std::string_view text, Case& out);
std::string to_string(const Case& c);

Status parse_dtype(std::string_view text, DType& out);
std::string_view name(TopkValues values);

// The cases of a workload file: one a line, # begins a comment. An empty op in a line is `op`'s.
Status read_workload(const std::string& path, Op op, std::vector<Case>& out);

// Whether a call writes an lse.
inline bool writes_lse(const Case& c) {
  return c.lse && (c.op != Op::cross_entropy_backward || c.loss) && c.op != Op::attention_backward;
}

// Where the case runs on this machine.
Status machine_of(const Case& c, Machine& out);
Context context_of(const Case& c);

}  // namespace onepass::cli

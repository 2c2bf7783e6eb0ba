// A call's tensors as a caller may have them: of any strides, broadcast, of another dtype,
// between guards. What they mean is what a cli::Call of the same case means, so the oracle's
// answer is the same.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/ops/call.hpp"
#include "cli/problem/guarded_array.hpp"
#include "fuzz/bytes.hpp"

namespace onepass::fuzz {

// One tensor of a call.
struct Argument {
  std::string_view name;
  bool written = false;
  bool kept = false;  // written, but with values that are read: in place, or added to
  cli::GuardedArray array;
  Tensor shown;  // what the op is given: array's tensor where it runs, unless it was spoilt
  // The call's own array that it stands for, and where in `array` its elements are: strides of
  // indices in C order.
  cli::GuardedArray* meant = nullptr;
  std::vector<std::int64_t> steps;
  bool in_order = false;  // every element has the same index in both

  std::int64_t place(std::int64_t index) const;  // of an element of `meant`
};

// What an op takes beside tensors.
struct Options {
  int axis = -1;
  double scale = 1, temperature = 1, softcap = 0, smoothing = 0, z_loss = 0, top_p = 1, min_p = 0;
  std::optional<double> attention_scale;
  std::int64_t top_k = 0, seed = 0, offset = 0, window_left = -1, window_right = -1, split = 0;
  std::int64_t ignore_index = cli::kIgnore;
  bool causal = false, check_pages = false, logits_only = false, deterministic = true;
  std::string variant;
};

struct Arguments {
  std::list<Argument> all;  // in the order of cli::kAllArrays, then those that stand for a number
  Options options;

  Argument* find(std::string_view name);
  // Absent where there is none.
  Tensor operator[](std::string_view name);
};

// Strides for a tensor of that shape: `repeated` dimensions step by 0, the last `dense`
// ones lie as in C.
std::vector<std::int64_t> decode_strides(Bytes& bytes, const std::vector<std::int64_t>& shape,
                                         const std::vector<bool>& repeated, int dense);

// Lays out what the call has. Broadcasts make elements of the call's own arrays equal.
Status lay(Bytes& bytes, cli::Call& call, Arguments& out);

// Copies the inputs to where they are read, and poisons the outputs.
Status prepare(Arguments& arguments);
// Brings everything back from where it ran.
Status fetch(Arguments& arguments);
// Copies the outputs to the arrays that they stand for.
void settle(Arguments& arguments);

// What an op has written that it must not have, in words: inputs, what lies beside elements,
// outputs where it was refused.
enum class Outcome { ran, refused, refused_spoilt };
std::string changed(const Arguments& arguments, Outcome outcome);

std::string to_string(const Arguments& arguments);

// Makes one thing wrong that every op has to refuse. Says what; empty where there was
// nothing to spoil.
std::string spoil(Bytes& bytes, const cli::Call& call, Arguments& arguments);

// Through the public API.
Status submit(const Context& context, const cli::Case& c, Arguments& arguments, Plan* plan);

}  // namespace onepass::fuzz

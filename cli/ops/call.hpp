// A case with its arrays: ready to be run, by any variant, as often as one likes.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "cli/ops/arrays.hpp"
#include "cli/ops/driver.hpp"
#include "cli/problem/case.hpp"
#include "oracle/oracle.hpp"

namespace onepass::cli {

inline constexpr std::int64_t kIgnore = -100;

class Call {
 public:
  // Allocates and fills the inputs. Elements of x, y and dy are already rounded to their dtype.
  Status make(const Case& wanted);

  // The same call with the same values, in memory of its own.
  Status make_like(const Call& other);

  // Poisons the outputs, and puts back what was in those that are written over or added to. On a
  // GPU all of it is there only once a kernel has ended that the run may overlap: an op has to wait
  // for what the stream did last.
  Status reset();

  // Through the public API.
  Status run(const Context& context, std::string_view variant, Plan* plan = nullptr);

  // Waits for a run on the GPU and brings the outputs here, where all is looked at.
  Status fetch();

  const Case& spec() const { return case_; }
  const Driver& driver() const { return driver_of(case_.op); }

  // Absent where the case has none.
  const GuardedArray& operator[](array::Id id) const { return arrays_[id]; }
  GuardedArray& operator[](array::Id id) { return arrays_[id]; }
  const GuardedArray& in() const { return arrays_[array::x]; }
  const GuardedArray& out() const { return arrays_[out_]; }  // y, or in place an input
  bool writes(array::Id id) const;

  // An array as the device of the case sees it.
  Tensor view(const GuardedArray& array) const { return array.tensor_on(case_.device); }

  // What makes row r's logits, as the oracle wants to be told.
  oracle::Transform transform(std::int64_t r) const;

  // C-order index of element c of row r in an array of x's shape.
  std::int64_t index(std::int64_t r, std::int64_t c) const;

 private:
  Status to_device();

  Case case_;
  std::vector<ArraySpec> specs_;
  std::array<GuardedArray, kArrayNames.size()> arrays_;
  array::Id out_ = array::y;
  std::map<array::Id, GuardedArray> pristine_;  // what was in arrays that are written over
  std::int64_t inner_ = 1;                      // elements between neighbours along the axis
};

// What the library finds out of a call of the case, which needs no memory: the tensors lie where
// nothing is. invalid_argument where it would refuse the call.
Status describe(const Case& c, Problem& out);

}  // namespace onepass::cli

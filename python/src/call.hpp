// One call of an op: the arrays that go in, those that come out, and where it runs.
#pragma once

#include <array>
#include <vector>

#include "array.hpp"
#include "onepass/context.hpp"
#include "onepass/plan.hpp"
#include "onepass/status.hpp"
#include "runtime/gpu.hpp"

namespace onepass::python {

// A shape, and shapes derived from it.
struct Extents {
  std::array<std::int64_t, kMaxRank> values{};
  std::size_t rank = 0;

  // Of an absent tensor: no dimensions. The op reports those past the limit.
  static Extents of(const ConstTensor& t);
  Extents without(std::int64_t axis) const;  // the op reports an axis that does not exist
  Extents with_last(std::int64_t extent) const;
  operator std::span<const std::int64_t>() const { return {values.data(), rank}; }
};

class Call {
 public:
  // The first array decides the kind of the results and where the op runs.
  Call(std::string_view argument, nb::handle first, nb::handle out);

  const Tensor& first() const { return first_.view; }
  // None: absent.
  ConstTensor input(std::string_view argument, nb::handle given) {
    return input(argument, given, Kind::Integers::numbers);
  }
  ConstTensor input_bits(std::string_view argument, nb::handle given) {
    return input(argument, given, Kind::Integers::bits);
  }
  // The next result, by the op's name for it: the caller's array if `out` has one, else a new one.
  Tensor output(std::string_view name, const Extents& shape, DType dtype);
  Tensor output_if(bool wanted, std::string_view name, const Extents& shape, DType dtype) {
    return wanted ? output(name, shape, dtype) : Tensor{};
  }

  // Runs op(context) without the interpreter's lock and returns the results.
  template <class Op>
  nb::object run(Op op);

 private:
  ConstTensor input(std::string_view argument, nb::handle given, Kind::Integers as);
  Array read(std::string_view argument, nb::handle given,
             Kind::Integers as = Kind::Integers::numbers);
  // Also checks that the array is on the first one's device.
  Array read_here(std::string_view argument, nb::handle given,
                  Kind::Integers as = Kind::Integers::numbers);
  nb::handle own_output(std::size_t index) const;
  Context context() const;
  nb::object workspace(std::size_t bytes, Context& context) const;
  void check_results() const;
  // Puts Python's names of arguments in place of the op's.
  Status in_words_of_the_caller(const Status& status) const;
  nb::object results();

  struct Result {
    nb::object array;
    std::string_view name;  // the op's name for it
    std::string argument;   // Python's argument that decides its dtype
  };

  static constexpr std::size_t kMostResults = 5;

  // Owners to keep alive until the call ends. Declared before first_, whose reading adds to it.
  std::vector<nb::object> kept_;
  std::string_view first_name_;
  Kind kind_;
  Array first_;
  nb::handle out_;
  std::array<Result, kMostResults> results_;
  std::size_t result_count_ = 0;
};

void raise_unless_ok(const Status& status);

// Sets how many threads ops on a CPU use from now on; 0: one per core.
void set_num_threads(int threads);
int num_threads();

// Calls a Python function. The op that it calls explains its plan and computes nothing.
Explanation explain(nb::handle function, const nb::args& args, const nb::kwargs& kwargs);

template <class Op>
nb::object Call::run(Op op) {
  check_results();
  Context where = context();
  const auto attempt = [&](const Context& context) {
    const nb::gil_scoped_release released;
    const gpu::OnDevice device(first_.on_gpu() ? first_.device.id : -1);
    return op(context);
  };
  Status status = attempt(where);
  if (status.code() == Code::unsupported && first_.on_gpu() && where.explanation() == nullptr) {
    // The cause may be a missing workspace: the library cannot allocate one while a CUDA graph is
    // captured, but the allocator of the array's library can.
    Explanation told;
    if (attempt(where.explaining(told)).ok() && told.plan.scratch_bytes > 0) {
      const nb::object memory = workspace(told.plan.scratch_bytes, where);
      status = attempt(where);
    }
  }
  raise_unless_ok(in_words_of_the_caller(status));
  if (first_.on_gpu() && kind_.waits()) raise_unless_ok(gpu::synchronize());
  return results();
}

}  // namespace onepass::python

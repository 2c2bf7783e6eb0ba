// One call of an op: the arrays that go in, those that come out, and where it runs.
#pragma once

#include <array>
#include <vector>

#include "array.hpp"
#include "onepass/context.hpp"
#include "onepass/status.hpp"
#include "runtime/gpu.hpp"

namespace onepass::python {

// A shape that is made from another's.
struct Extents {
  std::array<std::int64_t, kMaxRank> values{};
  std::size_t rank = 0;

  static Extents of(const Tensor& t);
  Extents without(std::int64_t axis) const;  // one that does not exist is left to the op to report
  Extents with_last(std::int64_t extent) const;
  operator std::span<const std::int64_t>() const { return {values.data(), rank}; }
};

class Call {
 public:
  // The first array decides what kind the results are, and where the op runs.
  Call(std::string_view argument, nb::handle first, nb::handle out);

  const Tensor& first() const { return first_.view; }
  // None: absent.
  ConstTensor input(std::string_view argument, nb::handle given) {
    return input(argument, given, Kind::Integers::numbers);
  }
  ConstTensor input_bits(std::string_view argument, nb::handle given) {
    return input(argument, given, Kind::Integers::bits);
  }
  // The next result, by the op's name for it: the caller's own array where `out` has
  // one, else a new one.
  Tensor output(std::string_view name, const Extents& shape, DType dtype);
  Tensor output_if(bool wanted, std::string_view name, const Extents& shape, DType dtype) {
    return wanted ? output(name, shape, dtype) : Tensor{};
  }

  // Runs op(context) without the interpreter's lock, and gives the results.
  template <class Op>
  nb::object run(Op op);

 private:
  ConstTensor input(std::string_view argument, nb::handle given, Kind::Integers as);
  Array read(std::string_view argument, nb::handle given,
             Kind::Integers as = Kind::Integers::numbers);
  // And it is where the first one is.
  Array read_here(std::string_view argument, nb::handle given,
                  Kind::Integers as = Kind::Integers::numbers);
  nb::handle own_output(std::size_t index) const;
  Context context() const;
  nb::object workspace(std::size_t bytes, Context& context) const;
  void check_results() const;
  // With the arguments' names for what the op calls otherwise.
  Status in_words_of_the_caller(const Status& status) const;
  nb::object results();

  struct Result {
    nb::object array;
    std::string_view name;  // the op's
    std::string argument;   // what decides it
  };

  static constexpr std::size_t kMostResults = 5;

  // Alive until the call is over. Before first_, whose reading adds to it.
  std::vector<nb::object> kept_;
  std::string_view first_name_;
  Kind kind_;
  Array first_;
  nb::handle out_;
  std::array<Result, kMostResults> results_;
  std::size_t result_count_ = 0;
};

void raise_unless_ok(const Status& status);

// From now on ops on a CPU use this many threads; 0: as many as there are cores.
void set_num_threads(int threads);
int num_threads();

// Calls a function of Python's; the op that it calls tells its plan and does nothing else.
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
    // Perhaps for want of workspace: while a CUDA graph is captured the library cannot allocate
    // any, but the caller's own allocator can.
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

// The functions of the package. Python writes down what a function's parameters are and what it does, and here is its
// body: to bind fifteen parameters and fill in their defaults takes an interpreter as long as all that is done with
// them.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstddef>

namespace onepass::python {

namespace nb = nanobind;

// All arguments of a call in the order of the function's parameters, to be taken one after the other.
class Arguments {
 public:
  explicit Arguments(const nb::handle* first) : next_(first) {}
  nb::handle next() { return *next_++; }
  template <std::size_t Count>
  std::array<nb::handle, Count> next() {
    std::array<nb::handle, Count> some;
    for (nb::handle& one : some) one = next();
    return some;
  }

 private:
  const nb::handle* next_;
};

using Body = nb::object (*)(Arguments&);

// From now on the body of the function of this name.
void define(const char* name, Body body);

// Adds `function(f)` to the module: f with the body of the same name, which f's own is never run for.
void add_functions(nb::module_& module);

}  // namespace onepass::python

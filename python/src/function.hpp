// The functions of the package. Python writes down what a function's parameters are and what it
// does, and here is its body: to bind fifteen parameters and fill in their defaults takes an
// interpreter as long as all that is done with them.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace onepass::python {

namespace nb = nanobind;

// All arguments of a call in the order of the function's parameters, to be taken one after the
// other, and all of them.
class Arguments {
 public:
  explicit Arguments(std::span<const nb::handle> all) : left_(all) {}

  bool any() const { return !left_.empty(); }
  nb::handle next() {
    if (!any()) throw std::logic_error("a function with fewer parameters than its body takes");
    const nb::handle first = left_.front();
    left_ = left_.subspan(1);
    return first;
  }
  template <std::size_t Count>
  std::array<nb::handle, Count> next() {
    std::array<nb::handle, Count> some;
    for (nb::handle& one : some) one = next();
    return some;
  }

 private:
  std::span<const nb::handle> left_;
};

using Body = nb::object (*)(Arguments&);

// The names of a body's parameters, in the order in which it takes them. What shares some has them
// in a list of its own.
class Names {
 public:
  Names(std::initializer_list<Names> parts) {
    for (const Names& part : parts) all_.insert(all_.end(), part.all_.begin(), part.all_.end());
  }
  Names(const char* one) : all_{one} {}

  const std::vector<std::string>& all() const { return all_; }

 private:
  std::vector<std::string> all_;
};

// From now on the body of the function of this name.
void define(const char* name, const Names& parameters, Body body);

// Adds `function(f)` to the module: a function with f's parameters and the body of f's name, which
// must take parameters of the same names; otherwise an ImportError says which differ. f itself is
// called only with arguments that it does not take, to say so.
void add_functions(nb::module_& module);

}  // namespace onepass::python

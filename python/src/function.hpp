// The functions of the package: Python declares their parameters and documentation, C++ has their
// bodies. C++ also binds the arguments, because binding fifteen parameters and their defaults takes
// the interpreter as long as the rest of a small call.
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

// The arguments of a call in the order of the function's parameters. A body takes them one by one,
// and must take all of them.
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

// The names of a body's parameters, in the order in which it takes them. Names nest, so that bodies
// can share a list.
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

// Registers the body of the function of this name.
void define(const char* name, const Names& parameters, Body body);

// Adds `function(f)` to the module: it makes a function with f's parameters and the body registered
// under f's name. If the body takes parameters of other names, an ImportError names the first that
// differs. f itself is called only with arguments that do not fit, so that Python raises the error.
void add_functions(nb::module_& module);

}  // namespace onepass::python

// The ops as functions of the module. Each is called by the function of the same name in onepass/, which has the
// defaults and the documentation, with all its arguments in their order.
#pragma once

#include <nanobind/nanobind.h>

#include "onepass/tensor.hpp"

namespace onepass::python {

void add_rows(nanobind::module_& module);
void add_losses(nanobind::module_& module);
void add_choices(nanobind::module_& module);
void add_attention(nanobind::module_& module);

// None is a value for any of them: that an argument is absent.
template <class... Arguments>
void define(nanobind::module_& module, const char* name,
            nanobind::object (*function)(Arguments...)) {
  const auto may_be_none = [](auto*) { return nanobind::arg().none(); };
  module.def(name, function,
             may_be_none(static_cast<std::remove_reference_t<Arguments>*>(nullptr))...);
}

// What sums of rows are kept in: an lse, a log-probability.
constexpr DType sum_dtype(DType in) { return in == DType::f64 ? DType::f64 : DType::f32; }

}  // namespace onepass::python

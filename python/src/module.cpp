// The extension module onepass._native.

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "arguments.hpp"
#include "call.hpp"
#include "function.hpp"
#include "ops.hpp"

namespace onepass::python {
namespace {

void add_plans(nb::module_& module) {
  using Class = nb::class_<Explanation>;
  Class(module, "Explanation")
      .def_prop_ro("plan", [](const Explanation& e) { return to_string(e.plan); })
      .def_prop_ro("variant", [](const Explanation& e) { return e.plan.variant; })
      .def_prop_ro("scratch_bytes", [](const Explanation& e) { return e.plan.scratch_bytes; })
      .def_ro("reasons", &Explanation::reasons)
      .def_ro("least_bytes", &Explanation::least_bytes)
      .def_ro("planned_bytes", &Explanation::planned_bytes);
  module.def("explain", &explain);
}

void set_num_threads_to(nb::handle threads) {
  const std::int64_t count = integer("threads", threads);
  if (count < 0) raise_value("threads", std::to_string(count) + " is negative");
  if (!std::in_range<int>(count)) {
    raise_value("threads", std::to_string(count) + " is more than 2^31 - 1");
  }
  set_num_threads(static_cast<int>(count));
}

}  // namespace
}  // namespace onepass::python

NB_MODULE(_native, module) {
  namespace python = onepass::python;
  python::define_rows();
  python::define_losses();
  python::define_select();
  python::define_attention();
  python::add_functions(module);
  python::add_plans(module);
  module.def("set_num_threads", &python::set_num_threads_to);
  module.def("get_num_threads", &python::num_threads);
  module.attr("has_cuda") = ONEPASS_PYTHON_HAS_CUDA != 0;
  module.attr("version") = ONEPASS_PYTHON_VERSION;
}

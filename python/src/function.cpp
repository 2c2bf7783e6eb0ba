#include "function.hpp"

#include <structmember.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <map>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace onepass::python {
namespace {

struct Defined {
  std::vector<std::string> parameters;
  Body body;
};

std::map<std::string_view, Defined>& bodies() {
  static auto& known = *new std::map<std::string_view, Defined>;
  return known;
}

constexpr std::size_t kMost = 32;  // parameters

struct Function {
  PyObject_HEAD vectorcallfunc call;
  PyObject* attributes;  // __dict__: name, documentation, and in __wrapped__ the signature
  PyObject* weak_references;
  PyObject* python;  // the Python function that declares the parameters
  Body body;
  std::size_t count;       // parameters
  std::size_t required;    // the first ones, which have no default
  std::size_t positional;  // the first ones, which may be passed without their names
  nb::handle names[kMost];
  nb::handle defaults[kMost];  // absent for what is required
};

Function& as_function(PyObject* object) { return *reinterpret_cast<Function*>(object); }

// The position of a parameter; `count` if there is none of this name.
std::size_t place_of(const Function& f, nb::handle name) {
  const std::span<const nb::handle> all(f.names, f.count);
  // Python interns names in source code, so identity finds most; names made at run time need a
  // comparison.
  auto found = std::ranges::find_if(all, [&](nb::handle p) { return p.is(name); });
  if (found == all.end()) {
    found = std::ranges::find_if(
        all, [&](nb::handle p) { return PyUnicode_Compare(p.ptr(), name.ptr()) == 0; });
  }
  return static_cast<std::size_t>(found - all.begin());
}

// Binds arguments to parameters: first `unnamed` positional ones, then the named ones. False if
// they do not fit.
bool bind(const Function& f, PyObject* const* given, std::size_t unnamed, PyObject* names,
          nb::handle (&values)[kMost]) {
  const std::size_t named = names == nullptr ? 0 : static_cast<std::size_t>(PyTuple_Size(names));
  if (unnamed > f.positional) return false;
  for (std::size_t i = 0; i < unnamed; ++i) values[i] = given[i];
  for (std::size_t i = unnamed; i < f.count; ++i) values[i] = f.defaults[i];
  for (std::size_t i = 0; i < named; ++i) {
    const std::size_t place = place_of(f, PyTuple_GetItem(names, static_cast<Py_ssize_t>(i)));
    if (place < unnamed || place == f.count) return false;
    values[place] = given[unnamed + i];
  }
  return std::all_of(values, values + f.required, [](nb::handle v) { return v.is_valid(); });
}

// Raises an error for the first argument that only another library's function has, if there is one.
bool tell_foreign(const Function& f, PyObject* names) {
  if (names == nullptr) return false;
  const nb::object not_here = nb::getattr(nb::handle(f.python), "not_here", nb::none());
  if (!nb::isinstance<nb::dict>(not_here)) return false;
  for (const nb::handle name : nb::borrow<nb::tuple>(names)) {
    const nb::object why = not_here.attr("get")(name);
    if (why.is_none()) continue;
    PyErr_Format(PyExc_TypeError, "%U: %U", name.ptr(), why.ptr());
    return true;
  }
  return false;
}

PyObject* call(PyObject* self, PyObject* const* given, std::size_t flags, PyObject* names) {
  const Function& f = as_function(self);
  nb::handle values[kMost];
  if (!bind(f, given, static_cast<std::size_t>(PyVectorcall_NARGS(flags)), names, values)) {
    if (tell_foreign(f, names)) return nullptr;
    // Python's own call raises the error.
    const nb::object nothing = nb::steal(PyObject_Vectorcall(f.python, given, flags, names));
    if (nothing.is_valid()) PyErr_SetString(PyExc_SystemError, "arguments that do not fit, and do");
    return nullptr;
  }
  try {
    Arguments arguments({values, f.count});
    nb::object result = f.body(arguments);
    if (arguments.any()) {
      throw std::logic_error("a function with more parameters than its body takes");
    }
    return result.release().ptr();
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

// No tp_clear is needed: a cycle through this object passes through a dictionary or a list, which
// has one.
int traverse(PyObject* self, visitproc visit, void* arg) {
  const Function& f = as_function(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(f.attributes);
  Py_VISIT(f.python);
  for (const nb::handle value : f.defaults) Py_VISIT(value.ptr());
  return 0;
}

void destroy(PyObject* self) {
  Function& f = as_function(self);
  PyTypeObject* const type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  if (f.weak_references != nullptr) PyObject_ClearWeakRefs(self);
  Py_CLEAR(f.attributes);
  Py_CLEAR(f.python);
  for (std::size_t i = 0; i < f.count; ++i) {
    f.names[i].dec_ref();
    f.defaults[i].dec_ref();
  }
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

PyObject* representation(PyObject* self) {
  const nb::object name = nb::steal(PyObject_GetAttrString(as_function(self).python, "__name__"));
  return name.is_valid() ? PyUnicode_FromFormat("<function %S of onepass>", name.ptr()) : nullptr;
}

// An attribute of a class stays a plain function. `help` and others take an object with this slot
// for a function.
PyObject* get(PyObject* self, PyObject* /*object*/, PyObject* /*type*/) { return Py_NewRef(self); }

// Pickles and copies the function by its name.
PyObject* reduce(PyObject* self, PyObject* /*nothing*/) {
  return PyObject_GetAttrString(self, "__qualname__");
}

nb::object make_type() {
  static PyMemberDef members[] = {
      {"__vectorcalloffset__", T_PYSSIZET, offsetof(Function, call), READONLY, nullptr},
      {"__dictoffset__", T_PYSSIZET, offsetof(Function, attributes), READONLY, nullptr},
      {"__weaklistoffset__", T_PYSSIZET, offsetof(Function, weak_references), READONLY, nullptr},
      {}};
  static PyGetSetDef properties[] = {
      {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr}, {}};
  static PyMethodDef methods[] = {{"__reduce__", reduce, METH_NOARGS, nullptr}, {}};
  static PyType_Slot slots[] = {{Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                                {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
                                {Py_tp_repr, reinterpret_cast<void*>(representation)},
                                {Py_tp_descr_get, reinterpret_cast<void*>(get)},
                                {Py_tp_members, members},
                                {Py_tp_getset, properties},
                                {Py_tp_methods, methods},
                                {0, nullptr}};
  static PyType_Spec spec{.name = "onepass._native.Function",
                          .basicsize = sizeof(Function),
                          .itemsize = 0,
                          .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
                                   Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                          .slots = slots};
  nb::object type = nb::steal(PyType_FromSpec(&spec));
  if (!type.is_valid()) throw nb::python_error();
  return type;
}

// Checks that Python's parameters are the body's, in the same order, because values are passed by
// position.
void check_parameters(const std::string& function, const std::vector<std::string>& taken,
                      const std::vector<std::string>& written) {
  const auto [own, other] = std::ranges::mismatch(taken, written);
  if (own == taken.end() && other == written.end()) return;
  const auto said = [](bool there, const auto& name) {
    return there ? "'" + *name + "'" : std::string("nothing");
  };
  const std::string text =
      "onepass: " + function + ": parameter " + std::to_string(own - taken.begin() + 1) + " is " +
      said(other != written.end(), other) + " in Python and " + said(own != taken.end(), own) +
      " in the extension, which is of another version: install both again";
  PyErr_SetString(PyExc_ImportError, text.c_str());
  throw nb::python_error();
}

nb::object make(const nb::object& type, const nb::object& python) {
  const nb::object code = python.attr("__code__");
  const auto unnamed = nb::cast<std::size_t>(code.attr("co_argcount"));
  const std::size_t count = unnamed + nb::cast<std::size_t>(code.attr("co_kwonlyargcount"));
  const nb::object local = code.attr("co_varnames");  // the parameters come first
  const nb::object positional = python.attr("__defaults__");
  const nb::object keyword = python.attr("__kwdefaults__");
  const std::size_t optional = positional.is_none() ? 0 : nb::len(positional);
  const std::string name = nb::str(python.attr("__name__")).c_str();
  const auto body = bodies().find(name);
  if (body == bodies().end() || count > kMost) throw nb::value_error(name.c_str());
  std::vector<std::string> written;
  for (std::size_t i = 0; i < count; ++i) written.emplace_back(nb::str(local[i]).c_str());
  check_parameters(name, body->second.parameters, written);

  nb::object made = nb::steal(PyType_GenericAlloc(reinterpret_cast<PyTypeObject*>(type.ptr()), 0));
  if (!made.is_valid()) throw nb::python_error();
  Function& f = as_function(made.ptr());
  f.call = call;
  f.python = python.inc_ref().ptr();
  f.body = body->second.body;
  f.count = count;
  f.required = unnamed - optional;
  f.positional = unnamed;
  for (std::size_t i = 0; i < count; ++i) {
    const nb::object parameter = local[i];
    f.names[i] = parameter.inc_ref();
    if (i >= unnamed) {
      f.defaults[i] = nb::object(keyword[parameter]).inc_ref();
    } else if (i >= f.required) {
      f.defaults[i] = nb::object(positional[i - f.required]).inc_ref();
    }
  }
  return made;
}

}  // namespace

void define(const char* name, const Names& parameters, Body body) {
  bodies().emplace(name, Defined{parameters.all(), body});
}

void add_functions(nb::module_& module) {
  const nb::object type = make_type();
  module.attr("Function") = type;
  module.def("function", [type](const nb::object& python) { return make(type, python); });
}

}  // namespace onepass::python

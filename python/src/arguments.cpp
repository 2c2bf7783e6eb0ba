#include "arguments.hpp"

#include <optional>
#include <string>
#include <utility>

namespace onepass::python {
namespace {

[[noreturn]] void refuse(std::string_view argument, nb::handle given, const char* wanted) {
  raise_type(argument, "'" + name_of_type(given) + "' is not " + wanted);
}

nb::object index_of(std::string_view argument, nb::handle given) {
  nb::object index = nb::steal(PyNumber_Index(given.ptr()));
  if (!index.is_valid()) {
    PyErr_Clear();
    refuse(argument, given, "an integer");
  }
  return index;
}

std::int64_t bits(std::string_view argument, nb::handle given) {
  const nb::object index = index_of(argument, given);
  int beyond = 0;
  const long long value = PyLong_AsLongLongAndOverflow(index.ptr(), &beyond);
  if (beyond == 0) return value;
  const unsigned long long pattern = PyLong_AsUnsignedLongLong(index.ptr());
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    raise_value(argument,
                std::string(nb::str(given).c_str()) + " is not between -2^63 and 2^64 - 1");
  }
  return static_cast<std::int64_t>(pattern);
}

// The dtype tells what a mask does: a floating one is added, another keeps where it is not zero.
void add_part(Call& call, nb::handle given, Mask& mask) {
  const ConstTensor part = call.input("mask", given);
  ConstTensor& place = is_floating(part.dtype) ? mask.additive : mask.boolean;
  if (place.present()) raise_value("mask", "two parts of the same sort");
  place = part;
}

}  // namespace

double number(std::string_view argument, nb::handle given) {
  const double value = PyFloat_AsDouble(given.ptr());
  if (value == -1.0 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    refuse(argument, given, "a number");
  }
  return value;
}

std::int64_t integer(std::string_view argument, nb::handle given) {
  const nb::object index = index_of(argument, given);
  const std::int64_t value = PyLong_AsLongLong(index.ptr());
  if (value == -1 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    raise_value(argument, std::string(nb::str(given).c_str()) + " does not fit into 64 bits");
  }
  return value;
}

// The op refuses axes that do not exist; this refuses those that do not fit into an int.
int axis_of(const Tensor& x, nb::handle given) {
  const std::int64_t axis = integer("axis", given);
  if (!std::in_range<int>(axis)) {
    raise_value("axis", std::to_string(axis) + " is outside a tensor of " + std::to_string(x.rank) +
                            " dimensions");
  }
  return static_cast<int>(axis);
}

bool flag(std::string_view argument, nb::handle given) {
  if (given.ptr() == Py_True) return true;
  if (given.ptr() == Py_False) return false;
  refuse(argument, given, "True or False");
}

std::string_view text(std::string_view argument, nb::handle given) {
  Py_ssize_t size = 0;
  const char* const data =
      PyUnicode_Check(given.ptr()) ? PyUnicode_AsUTF8AndSize(given.ptr(), &size) : nullptr;
  if (data == nullptr) {
    PyErr_Clear();
    refuse(argument, given, "a string");
  }
  return {data, static_cast<std::size_t>(size)};
}

std::size_t choice(std::string_view argument, nb::handle given,
                   std::initializer_list<std::string_view> words) {
  const std::string_view wanted = text(argument, given);
  std::string all;
  std::size_t index = 0;
  for (const std::string_view word : words) {
    if (word == wanted) return index;
    all += (index++ == 0 ? "" : ", ") + std::string(word);
  }
  raise_value(argument, "'" + std::string(wanted) + "' is not one of " + all);
}

namespace {

// The name of a dtype, given as torch.float32, numpy.float32 (a class), dtype('float32'), "float32"
// or "<f4".
std::string name_of_dtype(nb::handle given) {
  const nb::object named = nb::getattr(given, "__name__", nb::none());
  return nb::str(named.is_none() ? given : nb::handle(named)).c_str();
}

// Finds a dtype by the last word of its name, which is ours, NumPy's or PyTorch's. NumPy's meaning
// wins over C's: "float" is float64, as Python's own float is.
std::optional<DType> dtype_named(std::string_view whole) {
  struct Known {
    std::string_view word;
    DType dtype;
  };
  static constexpr Known known[] = {
      {"float32", DType::f32}, {"single", DType::f32},    {"f4", DType::f32},
      {"f", DType::f32},       {"float16", DType::f16},   {"half", DType::f16},
      {"f2", DType::f16},      {"e", DType::f16},         {"float64", DType::f64},
      {"double", DType::f64},  {"f8", DType::f64},        {"d", DType::f64},
      {"float", DType::f64},   {"bfloat16", DType::bf16}, {"int32", DType::i32},
      {"intc", DType::i32},    {"i4", DType::i32},        {"i", DType::i32},
      {"int64", DType::i64},   {"int", DType::i64},       {"i8", DType::i64},
      {"long", DType::i64},    {"longlong", DType::i64},  {"l", DType::i64},
      {"q", DType::i64}};
  std::string_view word = whole.substr(whole.rfind('.') + 1);
  // Drops the byte order of this machine. '>' stays, so that no name matches.
  if (word.starts_with('<') || word.starts_with('=')) word.remove_prefix(1);
  for (const Known& k : known) {
    if (word == k.word || word == name(k.dtype)) return k.dtype;
  }
  return std::nullopt;
}

}  // namespace

DType dtype(std::string_view argument, nb::handle given, DType otherwise) {
  if (given.is_none()) return otherwise;
  const std::string whole = name_of_dtype(given);
  const std::optional<DType> known = dtype_named(whole);
  if (!known || !is_floating(*known)) {
    raise_type(argument, "'" + whole + "' is not one of float32, float16, bfloat16, float64");
  }
  return *known;
}

DType index_dtype(nb::handle given) {
  if (given.is_none()) return DType::i64;
  const std::string whole = name_of_dtype(given);
  const std::optional<DType> known = dtype_named(whole);
  if (!known || is_floating(*known)) {
    raise_type("index_dtype", "'" + whole + "' is neither int32 nor int64");
  }
  return *known;
}

namespace {

// Whether an array is given, not one number for all rows. Python's own numbers need no look at what
// their type can do.
bool is_rows(nb::handle given) {
  return !PyFloat_Check(given.ptr()) && !PyLong_Check(given.ptr()) && is_array(given);
}

}  // namespace

PerRow per_row(Call& call, std::string_view argument, nb::handle given) {
  if (is_rows(given)) return call.input(argument, given);
  return number(argument, given);
}

PerRowInteger per_row_integer(Call& call, std::string_view argument, nb::handle given) {
  if (is_rows(given)) return call.input(argument, given);
  return integer(argument, given);
}

PerRowInteger per_row_bits(Call& call, std::string_view argument, nb::handle given) {
  if (is_rows(given)) return call.input_bits(argument, given);
  return bits(argument, given);
}

Mask MaskArguments::read(Call& call) const {
  Mask read;
  if (nb::isinstance<nb::tuple>(mask)) {
    for (const nb::handle part : nb::borrow<nb::tuple>(mask)) add_part(call, part, read);
  } else if (!mask.is_none()) {
    add_part(call, mask, read);
  }
  read.lengths = call.input("lengths", lengths);
  read.causal = flag("causal", causal);
  if (!window.is_none()) {
    if (!nb::isinstance<nb::tuple>(window) || nb::len(window) != 2) {
      refuse("window", window, "a pair (left, right)");
    }
    const auto sides = nb::borrow<nb::tuple>(window);
    read.window_left = integer("window", sides[0]);
    read.window_right = integer("window", sides[1]);
  }
  return read;
}

}  // namespace onepass::python

#include "call.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

#include "rows/tensors.hpp"

namespace onepass::python {
namespace {

std::atomic<int> chosen_threads = 0;

// The explanation that `explain` asks an op for, and whether an op has given it.
struct Question {
  Explanation told;
  bool answered = false;
};
thread_local Question* asked = nullptr;

std::string text_of(const Array& array) {
  return array.on_gpu() ? "cuda:" + std::to_string(array.device.id) : "the CPU";
}

std::span<const std::int64_t> extents_of(const Tensor& t) {
  return {t.shape.data(), static_cast<std::size_t>(std::min(t.rank, kMaxRank))};
}

bool same_device(const Array& a, const Array& b) {
  return a.device.type == b.device.type && a.device.id == b.device.id;
}

}  // namespace

Extents Extents::of(const ConstTensor& t) {
  return {.values = t.shape, .rank = static_cast<std::size_t>(std::clamp(t.rank, 0, kMaxRank))};
}

Extents Extents::without(std::int64_t axis) const {
  const auto count = static_cast<std::int64_t>(rank);
  if (axis < 0) axis += count;
  if (axis < 0 || axis >= count) return *this;
  Extents rest{.values = values, .rank = rank - 1};
  std::copy(values.begin() + axis + 1, values.begin() + count, rest.values.begin() + axis);
  return rest;
}

Extents Extents::with_last(std::int64_t extent) const {
  Extents changed = *this;
  if (rank > 0) changed.values[rank - 1] = extent;
  return changed;
}

Call::Call(std::string_view argument, nb::handle first, nb::handle out)
    : first_name_(argument), kind_(Kind::of(first)), first_(read(argument, first)), out_(out) {
  if (first_.view.rank > kMaxRank) {
    raise_value(argument, std::to_string(first_.view.rank) + " dimensions, at most " +
                              std::to_string(kMaxRank) + " are supported");
  }
}

Array Call::read(std::string_view argument, nb::handle given, Kind::Integers as) {
  Array array = Kind::of(given).read(argument, given, as);
  if (array.owner.is_valid()) kept_.push_back(array.owner);
  return array;
}

Array Call::read_here(std::string_view argument, nb::handle given, Kind::Integers as) {
  Array array = read(argument, given, as);
  if (!same_device(array, first_)) {
    raise_value(argument, "is on " + text_of(array) + ", " + std::string(first_name_) + " is on " +
                              text_of(first_));
  }
  return array;
}

ConstTensor Call::input(std::string_view argument, nb::handle given, Kind::Integers as) {
  if (given.is_none()) return {};
  return read_here(argument, given, as).view;
}

// `out` is the array of the first result, or a tuple with one entry per result.
nb::handle Call::own_output(std::size_t index) const {
  if (!nb::isinstance<nb::tuple>(out_)) return index == 0 ? out_ : nb::handle(Py_None);
  const auto given = nb::borrow<nb::tuple>(out_);
  return index < given.size() ? nb::handle(given[index]) : nb::handle(Py_None);
}

Tensor Call::output(std::string_view name, const Extents& shape, DType dtype) {
  Result& result = results_[result_count_];
  result.name = name;
  const nb::handle own = own_output(result_count_);
  if (own.is_none()) {
    result.argument = is_floating(dtype) ? "dtype" : "index_dtype";
    Array made = kind_.empty(shape, dtype, first_.on_gpu());
    result.array = std::move(made.owner);
    ++result_count_;
    return made.view;
  }
  result.argument = "out";
  if (nb::isinstance<nb::tuple>(out_)) {
    result.argument += "[" + std::to_string(result_count_) + "]";
  }
  const Array given = read_here(result.argument, own);
  if (given.read_only) raise_value(result.argument, "is read-only");
  // A reduced loss may have any shape of one element, which the op checks.
  const std::span<const std::int64_t> wanted = shape;
  if (!wanted.empty() && !std::ranges::equal(wanted, extents_of(given.view))) {
    raise_value(result.argument,
                "shape " + shape_text(extents_of(given.view)) + " is not " + shape_text(wanted));
  }
  result.array = nb::borrow(own);
  ++result_count_;
  return given.view;
}

Status Call::in_words_of_the_caller(const Status& status) const {
  const std::string& message = status.message();
  const std::size_t colon = message.find(": ");
  if (status.ok() || colon == std::string::npos) return status;
  const std::string_view name = std::string_view(message).substr(0, colon);
  const auto renamed = [&](std::string_view argument, std::size_t from) {
    return Status(status.code(), std::string(argument) + ": " + message.substr(from));
  };
  constexpr std::pair<std::string_view, std::string_view> masks[] = {
      {"mask.additive", "mask"},
      {"mask.boolean", "mask"},
      {"mask.lengths", "lengths"},
      {"mask.window_left", "window"},
      {"mask.window_right", "window"}};
  for (const auto& [ours, argument] : masks) {
    if (name == ours) return renamed(argument, colon + 2);
  }
  for (const Result& result : std::span(results_).first(result_count_)) {
    if (name != result.name) continue;
    const bool twice =
        !result.argument.starts_with("out") && message.compare(colon + 2, 6, "dtype ") == 0;
    return renamed(result.argument, colon + (twice ? 8 : 2));
  }
  return status;
}

Context Call::context() const {
  // Trusting, because every array has told its device.
  Context context = first_.on_gpu() ? Context::cuda(kind_.stream(first_.device)).trusting()
                                    : Context::cpu(num_threads());
  if (asked == nullptr) return context;
  asked->answered = true;
  return context.explaining(asked->told);
}

nb::object Call::workspace(std::size_t bytes, Context& context) const {
  const std::int64_t extent[] = {static_cast<std::int64_t>(bytes)};
  Array memory = kind_.empty(extent, DType::u8, first_.on_gpu());
  context = context.with_workspace(memory.view.data, bytes);
  return std::move(memory.owner);
}

void Call::check_results() const {
  if (nb::isinstance<nb::tuple>(out_) && nb::len(out_) > result_count_) {
    raise_value("out", std::to_string(nb::len(out_)) + " arrays for " +
                           std::to_string(result_count_) + " results");
  }
}

nb::object Call::results() {
  if (result_count_ == 1) return std::move(results_[0].array);
  nb::object all = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(result_count_)));
  for (std::size_t i = 0; i < result_count_; ++i) {
    PyTuple_SetItem(all.ptr(), static_cast<Py_ssize_t>(i), results_[i].array.release().ptr());
  }
  return all;
}

void raise_unless_ok(const Status& status) {
  const auto exception = [&] {
    switch (status.code()) {
      case Code::invalid_argument: return PyExc_ValueError;
      case Code::unsupported: return PyExc_NotImplementedError;
      case Code::out_of_memory: return PyExc_MemoryError;
      default: return PyExc_RuntimeError;
    }
  };
  if (status.ok()) return;
  raise(exception(), status.message());
}

void set_num_threads(int threads) { chosen_threads = threads; }

int num_threads() { return chosen_threads; }

Explanation explain(nb::handle function, const nb::args& args, const nb::kwargs& kwargs) {
  Question question;
  struct Asking {
    explicit Asking(Question& here) : before(std::exchange(asked, &here)) {}
    ~Asking() { asked = before; }
    Question* before;
  } const asking(question);
  if (PyCallable_Check(function.ptr()) == 0) {
    raise_type("op", "'" + name_of_type(function) + "' is not an op of onepass");
  }
  function(*args, **kwargs);
  if (!question.answered) {
    raise_type("op", std::string(nb::repr(function).c_str()) + " has called no op of onepass");
  }
  return question.told;
}

}  // namespace onepass::python

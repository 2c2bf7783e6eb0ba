#include "array.hpp"

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace onepass::python {
namespace {

std::string text_of(dlpack::DataType t) {
  const char* const names[] = {"int", "uint", "float", "a handle, ", "bfloat", "complex", "bool"};
  const std::string base = t.code < std::size(names) ? names[t.code] : "a type of code ";
  return t.code == dlpack::kBool ? base : base + std::to_string(t.bits);
}

DType dtype_of(std::string_view argument, dlpack::DataType t) {
  struct Known {
    std::uint8_t code, bits;
    DType dtype;
  };
  static constexpr Known known[] = {
      {dlpack::kFloat, 32, DType::f32},   {dlpack::kFloat, 16, DType::f16},
      {dlpack::kBfloat, 16, DType::bf16}, {dlpack::kFloat, 64, DType::f64},
      {dlpack::kInt, 64, DType::i64},     {dlpack::kInt, 32, DType::i32},
      {dlpack::kBool, 8, DType::u8},      {dlpack::kUInt, 8, DType::u8}};
  for (const Known& k : known) {
    if (t.lanes == 1 && t.code == k.code && t.bits == k.bits) return k.dtype;
  }
  raise_type(argument, "dtype " + text_of(t) +
                           " is not one that onepass knows: float32, float16, "
                           "bfloat16, float64, int32, int64, uint8 and bool are");
}

// Reads uint64 as int64: the same 64 bits.
void forget_the_sign(dlpack::DataType& t) {
  if (t.code == dlpack::kUInt && t.bits == 64) t.code = dlpack::kInt;
}

Array view_of(std::string_view argument, const dlpack::Tensor& t) {
  const bool on_gpu = t.device.type == dlpack::kCuda || t.device.type == dlpack::kCudaManaged;
  if (!on_gpu && t.device.type != dlpack::kCpu && t.device.type != dlpack::kCudaHost) {
    raise_value(argument, "is on a device that is neither a CPU nor a CUDA GPU (DLPack's type " +
                              std::to_string(t.device.type) + ")");
  }
  const auto rank = static_cast<std::size_t>(t.rank);
  const std::span<const std::int64_t> shape(t.shape, rank);
  // An empty array may have any strides, such as 0.
  const bool empty = std::ranges::find(shape, 0) != shape.end();
  std::span<const std::int64_t> strides;
  if (t.strides != nullptr && !empty) strides = {t.strides, rank};
  Array array;
  array.view = Tensor(static_cast<std::byte*>(t.data) + t.byte_offset, dtype_of(argument, t.dtype),
                      shape, strides);
  array.device = on_gpu ? dlpack::Device{dlpack::kCuda, t.device.id} : dlpack::Device{};
  return array;
}

const dlpack::ExchangeApi* usable_api(nb::handle type) {
  const nb::object capsule = nb::getattr(type, "__dlpack_c_exchange_api__", nb::none());
  if (PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api") == 0) return nullptr;
  const auto* api = static_cast<const dlpack::ExchangeApi*>(
      PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  while (api != nullptr && api->version.major != 1) api = api->older;
  return api != nullptr && api->tensor_from_object != nullptr ? api : nullptr;
}

// _arrays.py, which knows how each library makes and exports its arrays.
nb::object arrays_module() { return nb::module_::import_("onepass._arrays"); }

void throw_if(int failed) {
  if (failed != 0) throw nb::python_error();
}

// Raises with the first line of a library's own error, without the trace that may follow.
[[noreturn]] void raise_unreadable(std::string_view argument, const nb::python_error& error) {
  const std::string whole = nb::str(error.value()).c_str();
  raise_type(argument, "cannot be read: " + whole.substr(0, whole.find('\n')));
}

// Refuses tensors that require grad: the result would not be connected to them, and the gradient
// would be lost silently.
void check_gradient(std::string_view argument, nb::handle array) {
  static PyObject* const name = PyUnicode_InternFromString("requires_grad");
  const nb::object wanted = nb::steal(PyObject_GetAttr(array.ptr(), name));
  if (!wanted.is_valid()) throw nb::python_error();
  if (wanted.ptr() != Py_True) return;
  // Kept: a training step comes here with every tensor. Its initialisation calls Python, so that of
  // a static object could block other threads.
  static nb::handle refuse;
  if (!refuse.is_valid()) refuse = nb::object(arrays_module().attr("refuse_gradient")).release();
  refuse(nb::str(argument.data(), argument.size()));
}

nb::tuple tuple_of(std::span<const std::int64_t> numbers) {
  nb::tuple tuple = nb::steal<nb::tuple>(PyTuple_New(static_cast<Py_ssize_t>(numbers.size())));
  if (!tuple.is_valid()) throw nb::python_error();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    PyTuple_SetItem(tuple.ptr(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(numbers[i]));
  }
  return tuple;
}

// A shape, and the strides of a dense array that has it.
struct Dense {
  std::vector<std::int64_t> shape;
  nb::tuple extents, strides;

  // Caches the last one: programs repeat the same shapes, and comparing a shape is faster than
  // making tuples of it.
  static const Dense& of(std::span<const std::int64_t> shape) {
    // Not a static object: its initialisation would call Python while other threads wait for it.
    static auto& last = *new std::optional<Dense>;
    if (!last || !std::ranges::equal(shape, last->shape)) last = Dense(shape);
    return *last;
  }

 private:
  explicit Dense(std::span<const std::int64_t> of)
      : shape(of.begin(), of.end()), extents(tuple_of(of)) {
    const Tensor dense(nullptr, DType::u8, of);
    strides = tuple_of({dense.strides.data(), of.size()});
  }
};

}  // namespace

void raise(PyObject* exception, const std::string& what) {
  PyErr_SetString(exception, what.c_str());
  throw nb::python_error();
}

void raise_type(std::string_view argument, const std::string& what) {
  raise(PyExc_TypeError, std::string(argument) + ": " + what);
}

void raise_value(std::string_view argument, const std::string& what) {
  raise(PyExc_ValueError, std::string(argument) + ": " + what);
}

std::string name_of_type(nb::handle object) {
  return std::string(nb::str(object.type().attr("__name__")).c_str());
}

bool is_array(nb::handle object) { return Kind::of(object).readable(); }

// The facts of each type, for the type's lifetime. Never freed: at exit the interpreter is gone.
std::unordered_map<PyTypeObject*, Kind::Facts>& Kind::known() {
  static auto& known = *new std::unordered_map<PyTypeObject*, Facts>;
  return known;
}

// Called when a type is freed, since another type may get its address.
PyObject* Kind::forget(PyObject* /*self*/, PyObject* reference) {
  const auto found = std::ranges::find_if(
      known(), [&](const auto& entry) { return entry.second.type.is(reference); });
  // Leaves the map before Python objects are freed, because freeing them may call this again.
  if (found != known().end()) (void)known().extract(found);
  Py_RETURN_NONE;
}

// Looks at each type once, because a missing attribute costs an exception.
const Kind::Facts& Kind::facts_of(nb::handle array) {
  PyTypeObject* const type = Py_TYPE(array.ptr());
  if (const auto found = known().find(type); found != known().end()) return found->second;
  const nb::handle object(reinterpret_cast<PyObject*>(type));
  static PyMethodDef forgetting = {"forget", &Kind::forget, METH_O, nullptr};
  const nb::object callback = nb::steal(PyCFunction_New(&forgetting, nullptr));
  nb::object reference = nb::steal(PyWeakref_NewRef(object.ptr(), callback.ptr()));
  if (!reference.is_valid()) throw nb::python_error();
  const nb::object python = arrays_module().attr("kind_of")(object);
  Facts facts{.type = std::move(reference),
              .exchange = usable_api(object),
              .python = python,
              .capsule = python.attr("export"),
              .empty = python.attr("empty"),
              .quick = {python.attr("quick")[0], python.attr("quick")[1]},
              .dtypes = nb::borrow<nb::tuple>(python.attr("dtypes")),
              .immutable = nb::cast<bool>(python.attr("immutable")),
              .readable = nb::hasattr(object, "__dlpack__"),
              .differentiable = nb::hasattr(object, "requires_grad")};
  return known().emplace(type, std::move(facts)).first->second;
}

Kind::Kind(nb::handle array) : like_(array), facts_(&facts_of(array)) {}

Array Kind::read(std::string_view argument, nb::handle array, Integers as) const {
  if (facts_->differentiable) check_gradient(argument, array);
  return look(argument, array, as);
}

Array Kind::look(std::string_view argument, nb::handle array, Integers as) const {
  if (facts_->exchange != nullptr) {
    dlpack::Tensor borrowed{};
    if (facts_->exchange->tensor_from_object(array.ptr(), &borrowed) != 0) {
      raise_unreadable(argument, nb::python_error());
    }
    if (as == Integers::bits) forget_the_sign(borrowed.dtype);
    return view_of(argument, borrowed);
  }
  if (!facts_->readable) {
    raise_type(argument, "'" + name_of_type(array) + "' is not an array (it has no __dlpack__)");
  }
  // A capsule that is not consumed frees its tensor itself.
  nb::tuple exported;
  try {
    exported = nb::borrow<nb::tuple>(facts_->capsule(array));
  } catch (const nb::python_error& error) {
    raise_unreadable(argument, error);
  }
  nb::object capsule = exported[0];
  dlpack::Tensor tensor{};
  bool read_only = facts_->immutable;
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned") != 0) {
    const auto* managed = static_cast<const dlpack::ManagedVersioned*>(
        PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    tensor = managed->tensor;
    read_only = read_only || (managed->flags & dlpack::kReadOnly) != 0;
  } else {
    const auto* managed =
        static_cast<const dlpack::Managed*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
    if (managed == nullptr) throw nb::python_error();
    tensor = managed->tensor;
  }
  const bool bits_of_bf16 = nb::cast<bool>(exported[1]);
  if (bits_of_bf16) tensor.dtype.code = dlpack::kBfloat;
  if (as == Integers::bits) forget_the_sign(tensor.dtype);
  Array read = view_of(argument, tensor);
  read.read_only = read_only;
  read.owner = std::move(capsule);
  return read;
}

Array Kind::empty(std::span<const std::int64_t> shape, DType dtype, bool on_gpu) const {
  // Copies, not a reference: making an array may call this function again.
  const nb::tuple extents = Dense::of(shape).extents;
  const nb::tuple strides = Dense::of(shape).strides;
  const auto type = static_cast<int>(dtype);
  const nb::object& quick = facts_->quick[on_gpu ? 1 : 0];
  nb::object made = quick.is_none() ? facts_->empty(like_, extents, strides, type)
                                    : quick(extents, strides, facts_->dtypes[type]);
  Array array = Kind::of(made).look("out", made);
  array.owner = std::move(made);
  array.read_only = false;  // it is new, so filling it is safe even if its kind is immutable
  return array;
}

void* Kind::stream(dlpack::Device device) const {
  void* stream = nullptr;
  if (facts_->exchange != nullptr) {
    throw_if(facts_->exchange->current_stream(device.type, device.id, &stream));
    return stream;
  }
  return reinterpret_cast<void*>(nb::cast<std::uintptr_t>(facts_->python.attr("stream")(like_)));
}

bool Kind::waits() const {
  return facts_->exchange == nullptr && !nb::cast<bool>(facts_->python.attr("tells_stream"));
}

}  // namespace onepass::python

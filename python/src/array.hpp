// Reads Python arrays as the library's tensors, without copies, and makes new arrays of the same
// kind.
#pragma once

#include <nanobind/nanobind.h>

#include <span>
#include <string>
#include <unordered_map>

#include "dlpack.hpp"
#include "onepass/tensor.hpp"

namespace onepass::python {

namespace nb = nanobind;

[[noreturn]] void raise(PyObject* exception, const std::string& what);
// Errors about an argument: its name, and what is wrong with it.
[[noreturn]] void raise_type(std::string_view argument, const std::string& what);
[[noreturn]] void raise_value(std::string_view argument, const std::string& what);
std::string name_of_type(nb::handle object);

// A view of an array for the duration of a call.
struct Array {
  Tensor view;
  // kCpu or kCuda: memory that both can access counts as where it physically is.
  dlpack::Device device;
  bool read_only = false;
  nb::object owner;  // keeps the memory alive; absent: the caller's argument does

  bool on_gpu() const { return device.type == dlpack::kCuda; }
};

// How to read and make the arrays of one library: NumPy, PyTorch, CuPy, JAX, … Types with DLPack's
// C functions are read by these, all others through _arrays.py. The library itself makes new
// arrays: memory that PyTorch, for example, takes over by DLPack is unknown to its allocator, and
// `record_stream` has no effect on it.
class Kind {
 public:
  static Kind of(nb::handle array) { return Kind(array); }

  // How to read integers: as numbers, or as 64 bits, whether signed or not.
  enum class Integers { numbers, bits };

  Array read(std::string_view argument, nb::handle array, Integers as = Integers::numbers) const;
  // Makes a dense array on the device of the array that the kind was found from.
  Array empty(std::span<const std::int64_t> shape, DType dtype, bool on_gpu) const;
  // A cudaStream_t, as Context::cuda takes it.
  void* stream(dlpack::Device device) const;
  bool readable() const { return facts_->readable; }
  // Whether a call must wait for the GPU, because the library does not tell its stream.
  bool waits() const;

 private:
  struct Facts {
    nb::object type;  // a weak reference, whose callback drops these facts with the type
    const dlpack::ExchangeApi* exchange;  // null: there is none
    nb::object python;                    // the Kind of _arrays.py
    nb::object capsule, empty;            // two of its methods
    nb::object quick[2];  // faster than `empty` on a CPU, on a GPU; None: there is none
    nb::tuple dtypes;     // what `quick` takes for each DType
    bool immutable;       // no array of the kind may be written
    bool readable;        // has __dlpack__
    bool differentiable;  // has requires_grad
  };

  explicit Kind(nb::handle array);
  Array look(std::string_view argument, nb::handle array, Integers as = Integers::numbers) const;
  static const Facts& facts_of(nb::handle array);
  static std::unordered_map<PyTypeObject*, Facts>& known();
  static PyObject* forget(PyObject* self, PyObject* reference);

  nb::handle like_;  // the array that the kind was found from
  const Facts* facts_;
};

// Whether an object can be read as an array at all.
bool is_array(nb::handle object);

}  // namespace onepass::python

// Arrays of Python as tensors of the library, without copies, and new ones of the same kind.
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
// What a bad argument is answered with: its name, and what it was.
[[noreturn]] void raise_type(std::string_view argument, const std::string& what);
[[noreturn]] void raise_value(std::string_view argument, const std::string& what);
std::string name_of_type(nb::handle object);

// An array, looked at for the length of a call.
struct Array {
  Tensor view;
  dlpack::Device
      device;  // kCpu or kCuda: memory that both can reach counts as the one it is nearer to
  bool read_only = false;
  nb::object owner;  // what has to live as long as this; absent: the caller's own argument

  bool on_gpu() const { return device.type == dlpack::kCuda; }
};

// NumPy, PyTorch, CuPy, JAX, …: how to read their arrays and make more of them. Types that have
// DLPack's C functions are read by these, all others through _arrays.py. New arrays are always made
// by their library itself: one that PyTorch takes over by DLPack, for example, is none that its
// allocator knows, and `record_stream` does nothing.
class Kind {
 public:
  static Kind of(nb::handle array) { return Kind(array); }

  // How integers are read: as numbers, or also as 64 bits, signed or not.
  enum class Integers { numbers, bits };

  Array read(std::string_view argument, nb::handle array, Integers as = Integers::numbers) const;
  // A new one, dense, beside the array that the kind was found from, which is on a GPU or not.
  Array empty(std::span<const std::int64_t> shape, DType dtype, bool on_gpu) const;
  // A cudaStream_t, as Context::cuda takes it.
  void* stream(dlpack::Device device) const;
  bool readable() const { return facts_->readable; }
  // Whether what runs on our stream has to be waited for, because the kind does not tell its own.
  bool waits() const;

 private:
  struct Facts {
    nb::object type;  // a weak reference, which takes all this away with the type
    const dlpack::ExchangeApi* exchange;  // null: there is none
    nb::object python;                    // the Kind of _arrays.py,
    nb::object capsule, empty;            // two of its methods,
    nb::object quick[2];  // what does the same on a CPU, on a GPU; None: there is none
    nb::tuple dtypes;     // and what that takes for each DType
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

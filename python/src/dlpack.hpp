// The parts of DLPack's ABI (version 1) that are used here, under names of our own.
//
// Arrays come in one of two ways. Every library has the first: `array.__dlpack__()` gives a
// capsule, one Python call an array. Some have the second: a table of C functions on the array's
// type (`ExchangeApi`) reads a tensor and tells the current stream in tens of nanoseconds each.
#pragma once

#include <cstdint>

namespace onepass::python::dlpack {

enum DeviceType : std::int32_t { kCpu = 1, kCuda = 2, kCudaHost = 3, kCudaManaged = 13 };
enum TypeCode : std::uint8_t {
  kInt = 0,
  kUInt = 1,
  kFloat = 2,
  kBfloat = 4,
  kComplex = 5,
  kBool = 6
};

struct Device {
  std::int32_t type = kCpu;
  std::int32_t id = 0;
};

struct DataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  std::int32_t rank;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; null: dense
  std::uint64_t byte_offset;
};

struct Version {
  std::uint32_t major;
  std::uint32_t minor;
};

// What a capsule named "dltensor" holds.
struct Managed {
  Tensor tensor;
  void* context;
  void (*deleter)(Managed* self);
};

inline constexpr std::uint64_t kReadOnly = 1;

// What a capsule named "dltensor_versioned" holds.
struct ManagedVersioned {
  Version version;
  void* context;
  void (*deleter)(ManagedVersioned* self);
  std::uint64_t flags;
  Tensor tensor;
};

// What the capsule "dlpack_exchange_api" holds, `__dlpack_c_exchange_api__` of an array's type. The
// functions answer with 0, or −1 and a Python exception; none waits for a stream.
struct ExchangeApi {
  Version version;
  ExchangeApi* older;
  void (*unused[3])();  // to allocate, to take over and to hand over a ManagedVersioned
  int (*tensor_from_object)(void* object, Tensor* out);  // borrowed; may be null
  int (*current_stream)(std::int32_t device_type, std::int32_t device_id, void** stream);
};

}  // namespace onepass::python::dlpack

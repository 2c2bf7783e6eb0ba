#include "rows/cpu/elements.hpp"

#include <algorithm>

#include "core/number.hpp"

namespace onepass {

template <class T>
void load_elements(const void* from, DType dtype, std::int64_t stride, std::size_t n, T* to) {
  with_type(dtype, [=]<class Stored>(Type<Stored>) {
    const auto* p = static_cast<const Stored*>(from);
    for (std::size_t i = 0; i < n; ++i, p += stride) to[i] = load_as<T>(*p);
  });
}

template <class T>
void store_elements(const T* values, std::size_t n, T factor, void* to, DType dtype,
                    std::int64_t stride) {
  with_type(dtype, [=]<class Stored>(Type<Stored>) {
    auto* p = static_cast<Stored*>(to);
    for (std::size_t i = 0; i < n; ++i, p += stride) *p = store_as<Stored>(values[i] * factor);
  });
}

template <class T>
void fill_elements(T value, std::size_t n, void* to, DType dtype, std::int64_t stride) {
  with_type(dtype, [=]<class Stored>(Type<Stored>) {
    const auto stored = store_as<Stored>(value);
    auto* p = static_cast<Stored*>(to);
    if (stride == 1) {
      std::fill_n(p, n, stored);
    } else {
      for (std::size_t i = 0; i < n; ++i, p += stride) *p = stored;
    }
  });
}

template void load_elements(const void*, DType, std::int64_t, std::size_t, float*);
template void load_elements(const void*, DType, std::int64_t, std::size_t, double*);
template void store_elements(const float*, std::size_t, float, void*, DType, std::int64_t);
template void store_elements(const double*, std::size_t, double, void*, DType, std::int64_t);
template void fill_elements(float, std::size_t, void*, DType, std::int64_t);
template void fill_elements(double, std::size_t, void*, DType, std::int64_t);

}  // namespace onepass

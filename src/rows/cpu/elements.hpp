// Loads and stores elements of any dtype and stride one by one, where vectors cannot. Compiled
// once, for any CPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "onepass/tensor.hpp"

namespace onepass {

// Each of these exists for float and double.
template <class T>
void load_elements(const void* from, DType dtype, std::int64_t stride, std::size_t n, T* to);

// to[i] = values[i] · factor.
template <class T>
void store_elements(const T* values, std::size_t n, T factor, void* to, DType dtype,
                    std::int64_t stride);

template <class T>
void fill_elements(T value, std::size_t n, void* to, DType dtype, std::int64_t stride);

}  // namespace onepass

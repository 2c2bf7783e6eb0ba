// The ops, each the body of the function of the same name in onepass/, where its parameters are.
#pragma once

#include "onepass/tensor.hpp"

namespace onepass::python {

void define_rows();
void define_losses();
void define_select();
void define_attention();

// What sums of rows are kept in: an lse, a log-probability.
constexpr DType sum_dtype(DType in) { return in == DType::f64 ? DType::f64 : DType::f32; }

}  // namespace onepass::python

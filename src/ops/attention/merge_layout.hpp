// What a merge and its gradient share on a CPU: the checks of their tensors, and rows over threads.
#pragma once

#include <functional>
#include <string_view>

#include "rows/tensors.hpp"

namespace onepass {

// The rows of a merge: queries, and the elements of o as columns.
Status make_merge_shape(const TensorRef& a, Shape& shape);

// Checks and lays out what has the shape of a, and what has one value per query.
class MergeLayout {
 public:
  MergeLayout(const TensorRef& a, const Shape& shape) : a_(a), shape_(shape) {}

  Status values(std::string_view name, const TensorRef& t, bool written, Operand& out) const;
  Status sums(std::string_view name, const TensorRef& t, bool written, Operand& out) const;

 private:
  const TensorRef a_;
  const Shape& shape_;
};

// Calls body(row) on as many threads as have enough to do.
void for_merged_rows(const RowSpace& space, int threads,
                     const std::function<void(std::int64_t)>& body);

}  // namespace onepass

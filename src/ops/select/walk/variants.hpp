// The walk as variants of the dispatcher: a checked call as a step takes it.
#pragma once

#include "ops/select/args.hpp"
#include "ops/select/walk/plan.hpp"

namespace onepass::ops::select {

// Of rows that refuse_walk lets pass.
inline Call walk_call(const RowArgs& args) {
  const Operand& x = args.logits.x;
  const Operand& indices = args.select->indices;
  const auto as = [&]<class T>(Type<T>) -> Call {
    return {Rows<T>{static_cast<const T*>(x.data), static_cast<T*>(args.out.data),
                    static_cast<std::int64_t*>(indices.data), args.space.rows, args.space.cols,
                    x.row_strides[0], args.out.row_strides[0], indices.row_strides[0],
                    static_cast<int>(args.select->k)},
            args.workspace, args.queue.stream};
  };
  switch (x.dtype) {
    case DType::f16: return as(Type<F16>{});
    case DType::bf16: return as(Type<BF16>{});
    default: return as(Type<float>{});
  }
}

template <Status (*Step)(const Call&, const WalkLaunch&)>
Status walked(const RowArgs& args, const WalkLaunch& launch) {
  return Step(walk_call(args), launch);
}

}  // namespace onepass::ops::select

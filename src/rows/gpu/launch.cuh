// From a checked call to the kernel that was compiled for it. An op's Rows says which Row goes with a
// pair of stored types: `template <class In, class Out> using Row = …`, Out = void for any options.
#pragma once

#include <cuda_runtime.h>

#include <bit>

#include "onepass/plan.hpp"
#include "rows/gpu/drive.cuh"
#include "rows/gpu/flat.hpp"
#include "runtime/launch.cuh"

namespace onepass {

template <class Args>
Args args_for(const RowArgs& args) {
  if constexpr (std::is_same_v<Args, FlatArgs>) {
    return flat(args);
  } else {
    return args;
  }
}

// Calls body(Type<Row>): the usual pairs of dtypes without options are compiled as such, everything
// else takes any.
template <class Rows, class Body>
Status with_row(const RowArgs& args, const Plan& plan, Body body) {
  const auto as = [&]<class In, class Out>(Type<In>, Type<Out>) {
    return body(Type<typename Rows::template Row<In, Out>>{});
  };
  const DType in = args.y ? args.y.dtype : args.logits.x.dtype;
  const DType out = traffic(args.op).writes > 0 ? args.out.dtype : in;
  const bool same = !plan.general && out == in;
  const bool wider = !plan.general && out == DType::f32;
  switch (in) {
    case DType::f16:
      if (same) return as(Type<F16>{}, Type<F16>{});
      if constexpr (Rows::kWidens) {
        if (wider) return as(Type<F16>{}, Type<float>{});
      }
      return as(Type<F16>{}, Type<void>{});
    case DType::bf16:
      if (same) return as(Type<BF16>{}, Type<BF16>{});
      if constexpr (Rows::kWidens) {
        if (wider) return as(Type<BF16>{}, Type<float>{});
      }
      return as(Type<BF16>{}, Type<void>{});
    case DType::f64: return as(Type<double>{}, Type<void>{});
    default:
      if (same) return as(Type<float>{}, Type<float>{});
      return as(Type<float>{}, Type<void>{});
  }
}

inline Launch launch_of(const RowArgs& args, const Plan& plan) {
  return {.queue = args.queue,
          .blocks = plan.blocks,
          .threads = plan.threads,
          .shared_bytes = plan.shared_bytes};
}

// plan.row_threads lanes a row, plan.packs packs a lane, kGroupPacks in all with its other rows.
template <class Rows>
Status run_group(const RowArgs& args, const Plan& plan) {
  return with_row<Rows>(args, plan, [&]<class Row>(Type<Row>) {
    const auto run = [&](auto* kernel) {
      return launch(launch_of(args, plan), plan.variant, kernel, args_for<typename Row::Args>(args),
                    std::countr_zero(static_cast<unsigned>(plan.row_threads)));
    };
    if constexpr (!kTakesAny<Row>) {
      if (plan.packs == 2) return run(group_rows<Row, 2, 2>);
    }
    return run(group_rows<Row, 4, 1>);
  });
}

// Blocks in clusters of plan.split.
template <class Args, class... More>
Status launch_row_clusters(void (*kernel)(Args, More...), const RowArgs& args, const Plan& plan,
                           More... more) {
  Launch how = launch_of(args, plan);
  how.cluster = plan.split;
  return launch(how, plan.variant, kernel, args_for<std::remove_const_t<Args>>(args), more...);
}

// A cluster a row, plan.packs packs a thread, the rest in shared memory.
template <class Rows>
Status run_block(const RowArgs& args, const Plan& plan) {
  return with_row<Rows>(args, plan, [&]<class Row>(Type<Row>) {
    const auto run = [&](auto* kernel) {
      return launch_row_clusters(kernel, args, plan, plan.chunk,
                                 static_cast<int>(plan.shared_bytes / sizeof(typename Row::Held)));
    };
    if constexpr (kTakesAny<Row>) {
      return run(block_rows<Row, gpu_rows::kAnyPacks, true>);
    } else {
      if constexpr (Row::kFolds) {
        if (plan.looped && traffic(args.op).writes == 0) {
          return launch_row_clusters(fold_rows<Row>, args, plan, plan.chunk);
        }
      }
      if (plan.looped) return run(block_rows<Row, gpu_rows::kLoopPacks, true>);
      if (plan.packs == 2) return run(block_rows<Row, 2, false>);
      if (plan.packs == 4) return run(block_rows<Row, 4, false>);
      return run(block_rows<Row, 8, false>);
    }
  });
}

}  // namespace onepass

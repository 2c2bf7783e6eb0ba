// From a checked call to the kernel that was compiled for it. An op's Rows says which Row
// goes with a pair of stored types: `template <class In, class Out> using Row = …`, Out =
// void for any options.
#pragma once

#include <cuda_runtime.h>

#include <bit>

#include "rows/gpu/drive.cuh"
#include "rows/gpu/flat.hpp"
#include "rows/gpu/plan.hpp"
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

// Calls body(Type<Row>): the usual pairs of dtypes without options are compiled as such. All else
// is any row, of which there is one for what is computed in float and one for double.
template <class Rows, class Body>
Status with_row(const RowArgs& args, bool general, Body body) {
  const auto as = [&]<class In, class Out>(Type<In>, Type<Out>) {
    return body(Type<typename Rows::template Row<In, Out>>{});
  };
  const DType in = args.y ? args.y.dtype : args.logits.x.dtype;
  const DType out = traffic(args.op).writes > 0 ? args.out.dtype : in;
  const bool wider = out == DType::f32;
  if (in == DType::f64) return as(Type<double>{}, Type<void>{});
  if (general || (out != in && !(Rows::kWidens && wider))) return as(Type<float>{}, Type<void>{});
  if (in == DType::f32) return as(Type<float>{}, Type<float>{});
  if constexpr (Rows::kWidens) {
    if (wider && in == DType::f16) return as(Type<F16>{}, Type<float>{});
    if (wider) return as(Type<BF16>{}, Type<float>{});
  }
  return in == DType::f16 ? as(Type<F16>{}, Type<F16>{}) : as(Type<BF16>{}, Type<BF16>{});
}

// Where a planned launch goes, and how large it is.
template <class Planned>
LaunchConfig config_of(const RowArgs& args, const Planned& planned) {
  LaunchConfig how{.queue = args.queue, .blocks = planned.blocks, .threads = planned.threads};
  if constexpr (requires { planned.shared_bytes; }) how.shared_bytes = planned.shared_bytes;
  if constexpr (requires { planned.cluster; }) how.cluster = planned.cluster;
  return how;
}

// Launches kernel(args, more...), with what the kernel takes of the call's arguments.
template <class Planned, class Args, class... More>
Status launch_rows(void (*kernel)(Args, More...), std::string_view variant, const RowArgs& args,
                   const Planned& planned, std::type_identity_t<More>... more) {
  return launch(config_of(args, planned), variant, kernel,
                args_for<std::remove_const_t<Args>>(args), more...);
}

template <class Rows>
Status run_group(const RowArgs& args, const gpu_rows::GroupLaunch& group) {
  return with_row<Rows>(args, group.general, [&]<class Row>(Type<Row>) {
    const auto run = [&](auto* kernel) {
      return launch_rows(kernel, "gpu_group", args, group,
                         std::countr_zero(static_cast<unsigned>(group.row_threads)));
    };
    if constexpr (!kTakesAny<Row>) {
      if (group.packs == 2) return run(group_rows<Row, 2, 2>);
    }
    return run(group_rows<Row, 4, 1>);
  });
}

template <class Rows>
Status run_block(const RowArgs& args, const gpu_rows::BlockLaunch& block) {
  return with_row<Rows>(args, block.general, [&]<class Row>(Type<Row>) {
    const auto run = [&](auto* kernel) {
      return launch_rows(kernel, name_of(block), args, block, block.chunk, block.staged);
    };
    if constexpr (kTakesAny<Row>) {
      return run(block_rows<Row, gpu_rows::kAnyPacks, true>);
    } else {
      if constexpr (Row::kFolds) {
        if (block.looped && traffic(args.op).writes == 0) {
          return launch_rows(fold_rows<Row>, name_of(block), args, block, block.chunk);
        }
      }
      if (block.looped) return run(block_rows<Row, gpu_rows::kLoopPacks, true>);
      if (block.packs == 2) return run(block_rows<Row, 2, false>);
      if (block.packs == 4) return run(block_rows<Row, 4, false>);
      return run(block_rows<Row, 8, false>);
    }
  });
}

}  // namespace onepass

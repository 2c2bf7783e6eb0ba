// From a checked call to the kernel that was compiled for its rows.
#pragma once

#include "rows/gpu/launch.cuh"
#include "ops/select/gpu/stored.hpp"
#include "ops/select/gpu/team.cuh"

namespace onepass::ops::topk {

// Calls body(Type<Row>) with the row of a stored type that a plan has, of up to so many packs a thread.
template <class In, int MostPacks = gpu_choose::kManyPacks, class Body>
Status with_choose_row_of(const Plan& plan, Body body) {
  if (plan.general) return body(Type<ChooseRow<In, void>>{});
  if constexpr (MostPacks == gpu_choose::kManyPacks) {
    if (plan.packs == MostPacks) return body(Type<ChooseRow<In, In, MostPacks>>{});
  }
  return body(Type<ChooseRow<In, In>>{});
}
template <int MostPacks = gpu_choose::kManyPacks, class Body>
Status with_choose_row(const RowArgs& args, const Plan& plan, Body body) {
  return with_stored(args, [&]<class In>(Type<In>) {
    return with_choose_row_of<In, MostPacks>(plan, body);
  });
}

template <class Place = Operand>
CommonOf<Place> common_of(const RowArgs& args, const Plan& plan,
                          const EachRow<double>& temperature) {
  return {.space = space_of<Place>(args.space),
          .first_row = args.first_row,
          .scale = args.logits.scale,
          .temperature = each_row_at<Place>(temperature),
          .factor = factor_of(args.logits.scale, temperature.value),
          .size = plan.chunk,
          .stages = plan.chunk == 0 ? 0 : gpu_choose::stages(plan)};
}

// plan.split blocks a row, as a cluster or, where there is a workspace, all over the GPU.
template <class Args, class Common, class Outputs>
Status launch_choose(void (*kernel)(Args, Common, Outputs, Meeting), const RowArgs& args, Plan plan,
                     const Common& common, const Outputs& out) {
  Meeting meeting;
  const std::int64_t rows = args.end_row - args.first_row;
  if (plan.scratch_bytes > 0) {
    meeting = {.workspace = args.workspace,
               .parts = plan.split,
               .room = gpu_choose::segment_room(plan),
               .rows = rows};
    cudaMemsetAsync(args.workspace, 0, gpu_choose::ticket_bytes(rows),
                    static_cast<cudaStream_t>(args.queue.stream));
    plan.split = 1;  // no cluster
  } else {
    meeting.room = gpu_choose::room(plan) / plan.split;
  }
  return launch_row_clusters(kernel, args, plan, common, out, meeting);
}

}  // namespace onepass::ops::topk

// From a checked call to the kernel that was compiled for its rows.
#pragma once

#include "ops/select/gpu/stored.hpp"
#include "ops/select/gpu/team.cuh"
#include "rows/gpu/launch.cuh"

namespace onepass::ops::select {

// Calls body(Type<Row>) with the row of a stored type that a launch takes, of up to so many
// packs per thread.
template <class In, int MostPacks = gpu_select::kManyPacks, class Body>
Status with_dense_row_of(int packs, Body body) {
  if constexpr (MostPacks == gpu_select::kManyPacks) {
    if (packs == MostPacks) return body(Type<SelectRow<In, In, MostPacks>>{});
  }
  return body(Type<SelectRow<In, In>>{});
}

// The same of every stored type; with any options, there is one row for them all.
template <int MostPacks = gpu_select::kManyPacks, class Body>
Status with_select_row(const RowArgs& args, bool general, int packs, Body body) {
  if (general) return body(Type<SelectRow<float, void>>{});
  return with_stored(
      args, [&]<class In>(Type<In>) { return with_dense_row_of<In, MostPacks>(packs, body); });
}

template <class Place = Operand>
CommonOf<Place> common_of(const RowArgs& args, const EachRow<double>& temperature) {
  return {.space = space_of<Place>(args.space),
          .first_row = args.first_row,
          .scale = args.logits.scale,
          .temperature = each_row_at<Place>(temperature),
          .factor = factor_of(args.logits.scale, temperature.value),
          .size = 0,
          .stages = 0};
}

// The same where a row comes in parts and stages.
template <class Place = Operand>
CommonOf<Place> common_of(const RowArgs& args, const EachRow<double>& temperature,
                          const gpu_select::SelectLaunch& select) {
  CommonOf<Place> common = common_of<Place>(args, temperature);
  common.size = select.chunk;
  common.stages = select.stages;
  return common;
}

// A row's blocks meet in their cluster or, where there is a workspace, all over the GPU.
template <class Args, class Common, class Outputs>
Status launch_select(void (*kernel)(Args, Common, Outputs, Meeting), std::string_view variant,
                     const RowArgs& args, const gpu_select::SelectLaunch& select,
                     const std::type_identity_t<Common>& common,
                     const std::type_identity_t<Outputs>& out) {
  Meeting meeting{.room = select.segment};
  if (select.scratch_bytes > 0) {
    meeting.workspace = args.workspace;
    meeting.parts = select.parts;
    meeting.rows = args.end_row - args.first_row;
    cudaMemsetAsync(args.workspace, 0, gpu_select::ticket_bytes(meeting.rows),
                    static_cast<cudaStream_t>(args.queue.stream));
  }
  return launch_rows(kernel, variant, args, select, common, out, meeting);
}

}  // namespace onepass::ops::select

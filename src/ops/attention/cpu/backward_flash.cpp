// attention/cpu_flash of the backward: tiles of keys against tiles of query rows.
//
// Idea    a tile of keys keeps its gradients in L2 while all rows that see it go by, 64 at a time:
//         scores and do · v of the tile, weights from the lse, then three products. What it adds to
//         the queries goes to sums in memory; tiles of keys add to them in their order, so that no
//         bit depends on the threads. Five products, as many as there are.
// Versus  cpu_naive: a row that is loaded serves all keys of a tile, and sums stay in registers.
// Bytes   q and do once per tile of keys, the queries' sums twice; k and v once. The workspace is
//         as large as q in the computing type, whatever the lengths.
// Limits  none: every dtype, stride and option. Gradients of an additive mask are made in plain
//         loops.
// Proof   tests/ops/attention/backward_test.cpp, `onepass verify attention_backward`.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/attention/cpu/backward_flash.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <string>

#include "ops/attention/cpu/backward-inl.hpp"
#include "ops/attention/cpu/backward_rest.hpp"
#include "ops/attention/cpu/backward_work.hpp"
#include "ops/attention/cpu/variants.hpp"
#include "runtime/workers.hpp"

HWY_BEFORE_NAMESPACE();
namespace onepass::HWY_NAMESPACE {
namespace {

template <class T>
void Work(const AttentionBackwardArgs& a, const BackwardWork<T>& work, Team& team, T* memory) {
  BackwardFlash<T> flash(a, work,
                         memory + static_cast<size_t>(team.rank()) * work.layout.elements());
  int64_t turn = team.rank();
  for (const KvHead& head : work.tiles.heads()) {
    const int64_t tiles = BackwardTiles::row_tiles(head);
    for (; turn < head.first_tile + tiles; turn += team.size()) {
      flash.prepare(head, turn - head.first_tile);
    }
  }
  team.barrier();
  const auto items = static_cast<int64_t>(work.tiles.items().size());
  for (int64_t i = team.take(1); i < items; i = team.take(1)) {
    flash.run(work.tiles.items()[static_cast<size_t>(i)]);
  }
}

void BackwardWorker(const AttentionBackwardArgs& a, const BackwardWork<float>& work, Team& team,
                    float* memory) {
  Work(a, work, team, memory);
}

void BackwardWorkerF64(const AttentionBackwardArgs& a, const BackwardWork<double>& work, Team& team,
                       double* memory) {
  Work(a, work, team, memory);
}

}  // namespace
}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onepass::ops::attention {

HWY_EXPORT(BackwardWorker);
HWY_EXPORT(BackwardWorkerF64);

namespace {

// Runs worker(args, work, team, memory) on all threads, and then what is not made of tiles.
template <class T, class Worker>
Status run_backward(const AttentionBackwardArgs& args, const CpuAttentionBackwardLaunch& launch,
                    Worker worker) {
  BackwardWork<T> work(args, launch.tile_keys);
  const std::size_t own = static_cast<std::size_t>(launch.threads) * work.layout.elements();
  const double bytes = static_cast<double>(own) * sizeof(T) + work.workspace.bytes(sizeof(T));
  std::byte* memory = bytes < 0x1p60 ? scratch(static_cast<std::size_t>(bytes)) : nullptr;
  if (memory == nullptr) {
    return {Code::out_of_memory, "no memory for the gradients of " +
                                     std::to_string(work.workspace.rows) +
                                     " queries: " + std::to_string(bytes) + " bytes"};
  }
  work.place(memory + own * sizeof(T));
  run_team(launch.threads, [&](Team& team) {
    worker(args, work, team, reinterpret_cast<T*>(memory));
    zero_unused(args, team);
    sink_gradients(args, team);
    mask_gradients(args, team);
  });
  return {};
}

}  // namespace

Status cpu_backward_flash(const AttentionBackwardArgs& args,
                          const CpuAttentionBackwardLaunch& launch) {
  if (args.q.dtype == DType::f64) {
    return run_backward<double>(args, launch, HWY_DYNAMIC_DISPATCH(BackwardWorkerF64));
  }
  return run_backward<float>(args, launch, HWY_DYNAMIC_DISPATCH(BackwardWorker));
}

}  // namespace onepass::ops::attention
#endif

// attention/cpu_flash: tiles of query rows against blocks of keys, scores never in memory.
//
// Idea    a tile's rows keep a State and a sum of values each; a block of keys is scored, folded
//         into the states and its values added, while all of it is in L1. Heads that share keys
//         share a tile. Few rows with many keys are cut: parts of the keys leave states and sums,
//         which merge in the order of the parts.
// Versus  cpu_naive: a key that is loaded serves all rows of a tile, and sums stay in registers.
// Bytes   k and v once per tile, from L2 where a head's stay there; memory for a tile,
//         whatever the lengths.
// Limits  none: every dtype, stride and option.
// Proof   tests/ops/attention/attention_test.cpp, `onepass verify attention`; numbers: results/.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/attention/cpu/flash.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <string>

#include "core/simd/memory-inl.hpp"
#include "ops/attention/cpu/flash-inl.hpp"
#include "ops/attention/cpu/flash.hpp"
#include "ops/attention/cpu/variants.hpp"
#include "runtime/workers.hpp"

HWY_BEFORE_NAMESPACE();
namespace onepass::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// The mean of a row's values from what its parts left: states, and sums a stride apart.
template <class T, class Out>
HWY_NOINLINE void WriteMean(State<T> total, const State<T>* states, const T* sums, int64_t parts,
                            size_t apart, Out* o, size_t dim) {
  const hn::ScalableTag<T> d;
  using Vector = hn::Vec<decltype(d)>;
  const size_t lanes = hn::Lanes(d);
  const Vector first = hn::Set(d, factor(total, states[0].m));
  for (size_t j = 0; j < dim; j += lanes) {
    Vector mean = hn::MulAdd(hn::LoadU(d, sums + j), first, hn::Zero(d));
    for (int64_t i = 1; i < parts; ++i) {
      const Vector share = hn::Set(d, factor(total, states[i].m));
      mean = hn::MulAdd(hn::LoadU(d, sums + static_cast<size_t>(i) * apart + j), share, mean);
    }
    j + lanes <= dim ? StoreLanes(d, mean, o + j) : StoreTail(d, mean, o + j, dim - j);
  }
}

// Writes o and lse of a row.
template <class T>
void Finish(const AttentionArgs& a, const FlashWork<T>& work, const RowTile& tile, int64_t row,
            const State<T>* states, const T* sums, int64_t parts, size_t apart) {
  const int64_t head = work.tiles.head(tile, row);
  const int64_t token = tile.sequence.q_first + work.tiles.query(tile, row);
  LongState all(states[0]);
  for (int64_t i = 1; i < parts; ++i) all = merge(all, LongState(states[i]));
  const auto total = narrow<T>(all);
  with_type_for<float>(a.o.dtype, [&]<class Out>(Type<Out>) HWY_ATTR {
    Out* o = static_cast<Out*>(a.o.data) + a.o.offset(tile.batch, head, token);
    WriteMean(total, states, sums, parts, apart, o, static_cast<size_t>(a.dim_v));
  });
  if (!a.lse) return;
  write(a.lse.data, a.lse.dtype, a.lse.offset(tile.batch, head, token), logsumexp(total));
}

// One part of a tile's keys. Where it is all of them, o is finished; else its states
// and sums are left.
template <class T>
void WorkOn(const AttentionArgs& a, const FlashWork<T>& work, int64_t index, int64_t part,
            Flash<T>& flash) {
  const RowTile tile = work.tiles.at(index);
  flash.run(tile, work.keys_of(tile, part), part == 0);
  for (int64_t r = 0; r < tile.rows; ++r) {
    const State<T> state = flash.state(r);
    if (work.parts == 1) {
      Finish(a, work, tile, r, &state, flash.sums(r), 1, 0);
      continue;
    }
    *work.state(index, r, part) = state;
    std::copy_n(flash.sums(r), static_cast<size_t>(a.dim_v), work.sums(index, r, part));
  }
}

template <class T>
void MergeParts(const AttentionArgs& a, const FlashWork<T>& work, int64_t index) {
  const RowTile tile = work.tiles.at(index);
  for (int64_t r = 0; r < tile.rows; ++r) {
    Finish(a, work, tile, r, work.state(index, r, 0), work.sums(index, r, 0), work.parts,
           static_cast<size_t>(work.layout.padded_v));
  }
}

template <class T>
void Work(const AttentionArgs& a, const FlashWork<T>& work, Team& team, T* memory) {
  Flash<T> flash(a, work.tiles, work.layout,
                 memory + static_cast<size_t>(team.rank()) * work.layout.elements());
  const int64_t items = work.tiles.count() * work.parts;
  // Small enough to level the load, large enough that little ones do not wait for each other.
  const int64_t block = std::clamp<int64_t>(items / (64 * team.size()), 1, 16);
  for (int64_t first = team.take(block); first < items; first = team.take(block)) {
    for (int64_t i = first; i < std::min(first + block, items); ++i) {
      WorkOn(a, work, i / work.parts, i % work.parts, flash);
    }
  }
  if (work.parts == 1) return;
  team.barrier();
  for (int64_t i = team.rank(); i < work.tiles.count(); i += team.size()) MergeParts(a, work, i);
}

void FlashWorker(const AttentionArgs& a, const FlashWork<float>& work, Team& team, float* memory) {
  Work(a, work, team, memory);
}

void FlashWorkerF64(const AttentionArgs& a, const FlashWork<double>& work, Team& team,
                    double* memory) {
  Work(a, work, team, memory);
}

}  // namespace
}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onepass::ops::attention {

HWY_EXPORT(FlashWorker);
HWY_EXPORT(FlashWorkerF64);

namespace {

// Runs worker(args, work, team, memory) on all threads.
template <class T, class Worker>
Status run(const AttentionArgs& args, const CpuAttentionLaunch& launch, Worker worker) {
  FlashWork<T> work(args, launch);
  const std::size_t own = static_cast<std::size_t>(launch.threads) * work.layout.elements();
  const double bytes = static_cast<double>(own) * sizeof(T) + work.shared_bytes();
  std::byte* memory = bytes < 0x1p60 ? scratch(static_cast<std::size_t>(bytes)) : nullptr;
  if (memory == nullptr) {
    return {Code::out_of_memory, "no memory for " + std::to_string(work.parts) +
                                     " parts of keys: " + std::to_string(bytes) + " bytes"};
  }
  work.place(memory + own * sizeof(T));
  run_team(launch.threads,
           [&](Team& team) { worker(args, work, team, reinterpret_cast<T*>(memory)); });
  return {};
}

}  // namespace

Status cpu_flash(const AttentionArgs& args, const CpuAttentionLaunch& launch) {
  if (args.q.dtype == DType::f64) {
    return run<double>(args, launch, HWY_DYNAMIC_DISPATCH(FlashWorkerF64));
  }
  return run<float>(args, launch, HWY_DYNAMIC_DISPATCH(FlashWorker));
}

}  // namespace onepass::ops::attention
#endif

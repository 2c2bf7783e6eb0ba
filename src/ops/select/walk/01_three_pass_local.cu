// topk/01_three_pass_local: maximum, sum, and the sixteen largest of every thread's slice.
//
// Idea    a thread keeps its sixteen largest in registers; one thread puts them all through a heap of K. Where a
//         list was too short, its thread looks for its next sixteen.
// Versus  00_unfused: no probabilities in memory, and the candidates in one pass in place of K.
// Bytes   x three times, the second and third time from a cache if it stays there; once more for every sixteen
//         of the K largest that lie in one thread's slice.
// Limits  K up to 256; f32, f16, bf16; dense rows, no options.
// Proof   `onepass verify`, with fill=clustered for the lists; numbers: docs/walk/topk.md.

#include "ops/select/walk/top_list.cuh"
#include "ops/select/walk/variants.hpp"
#include "rows/packs.hpp"

namespace onepass::ops::topk {
namespace {

// The K largest keys, the smallest of them first. One thread changes it.
class Heap {
 public:
  // Over K zeros.
  __device__ Heap(Key* keys, int k) : keys_(keys), k_(k) {}

  __device__ Key smallest() const { return keys_[0]; }

  // False where the key is not among the largest.
  __device__ bool offer(Key key) {
    if (key <= smallest()) return false;
    int at = 0;
    for (int child = 1; child < k_; child = 2 * at + 1) {
      if (child + 1 < k_ && keys_[child + 1] < keys_[child]) ++child;
      if (keys_[child] >= key) break;
      keys_[at] = keys_[child];
      at = child;
    }
    keys_[at] = key;
    return true;
  }

 private:
  Key* keys_;
  int k_;
};

using WarpLists = Key[TopList::kKeys][kWarp];

// By a whole block: warp after warp puts its lists down, and thread 0 takes from each what is large enough.
__device__ void add_by_one_thread(const TopList& list, WarpLists& slots, Heap& heap) {
  const auto thread = static_cast<int>(threadIdx.x);
#pragma unroll 1
  for (int warp = 0; warp < geometry::kListWarps; ++warp) {
    if (thread / kWarp == warp) {
#pragma unroll
      for (int i = 0; i < TopList::kKeys; ++i) slots[i][thread % kWarp] = list.at(i);
    }
    __syncthreads();
    if (thread == 0) {
      for (int lane = 0; lane < kWarp; ++lane) {
        int i = 0;
        while (i < TopList::kKeys && heap.offer(slots[i][lane])) ++i;
      }
    }
    __syncthreads();
  }
}

template <class Row>
__global__ __launch_bounds__(geometry::kListThreads) void three_pass_local_kernel(
    const __grid_constant__ typename Row::Args args, const __grid_constant__ Common common,
    const __grid_constant__ TopkOutputs out) {
  __shared__ float of_warp[32];
  __shared__ WarpLists slots;
  __shared__ Key keys[geometry::kMostK];
  const Row row = row_of_block<Row>(args, common);
  for (int i = threadIdx.x; i < geometry::kMostK; i += geometry::kListThreads) keys[i] = 0;

  const State<float> state = state_in_two_passes(row, args.cols, of_warp);

  Heap heap(keys, static_cast<int>(out.k));
  TopList list;
  Key below = kAllKeys;
  do {
    list.gather(row, args.cols, below);
    add_by_one_thread(list, slots, heap);
    below = rest_below(list.least(), heap.smallest());
  } while (__syncthreads_or(below != kNoKeys));
  sort_descending(keys, geometry::kMostK);

  const Answer answer(common, out, common.first_row + blockIdx.x, row, state);
  answer.write_keys(keys, static_cast<int>(out.k), of_warp);
}

}  // namespace

Status three_pass_local(const RowArgs& args, const WalkLaunch& how) {
  return launch_walk(args, how, []<class Row>(Type<Row>) { return three_pass_local_kernel<Row>; });
}

}  // namespace onepass::ops::topk

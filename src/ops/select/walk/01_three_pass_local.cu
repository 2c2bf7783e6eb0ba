// topk/01_three_pass_local: maximum, sum, and the sixteen largest of every thread's slice.
//
// Idea    a thread keeps its sixteen largest in registers; one thread puts them all through a heap
//         of K. Where a list was too short, its thread looks for its next sixteen.
// Versus  00_unfused: no probabilities in memory, and the candidates in one pass in place of K.
// Bytes   x three times, the second and third time from a cache if it stays there; once more for
//         every sixteen of the K largest that lie in one thread's slice.
// Limits  K up to 256; f32, f16, bf16; dense rows, no options.
// Proof   `onepass verify`, with fill=clustered for the lists; numbers: docs/walk/topk.md.

#include "merge/sort.cuh"
#include "ops/select/walk/top_list.cuh"

namespace onepass::ops::select {
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

using WarpLists = Key[TopList::kKeys][kLanes];

// By a whole block: one warp after the other puts its lists down, and thread 0 takes what
// is large enough.
__device__ void add_by_one_thread(const TopList& list, WarpLists& slots, Heap& heap) {
  const auto thread = static_cast<int>(threadIdx.x);
#pragma unroll 1
  for (int warp = 0; warp < kListWarps; ++warp) {
    if (thread / kLanes == warp) {
#pragma unroll
      for (int i = 0; i < TopList::kKeys; ++i) slots[i][thread % kLanes] = list.at(i);
    }
    __syncthreads();
    if (thread == 0) {
      for (int lane = 0; lane < kLanes; ++lane) {
        int i = 0;
        while (i < TopList::kKeys && heap.offer(slots[i][lane])) ++i;
      }
    }
    __syncthreads();
  }
}

template <class T>
__global__ void __launch_bounds__(kListThreads) three_pass_local_kernel(Rows<T> a) {
  __shared__ float of_warp[32];
  __shared__ WarpLists slots;
  __shared__ Key keys[kMostK];
  const T* x = a.in(blockIdx.x);
  for (int i = static_cast<int>(threadIdx.x); i < kMostK; i += kListThreads) keys[i] = 0;

  const State<float> state = state_in_two_passes(x, a.cols, of_warp);

  Heap heap(keys, a.k);
  TopList list;
  Key below = kAllKeys;
  do {
    list.gather(x, a.cols, below);
    add_by_one_thread(list, slots, heap);
    below = rest_below(list.least(), heap.smallest());
  } while (__syncthreads_or(below != kNoKeys));
  sort_descending(keys, kMostK);

  write_answer(a, state, keys);
}

}  // namespace

Status three_pass_local(const Call& call, const WalkLaunch& how) {
  return with_rows(call, [&]<class T>(Rows<T> rows) {
    return launch(three_pass_local_kernel<T>, how, call, rows);
  });
}

}  // namespace onepass::ops::select

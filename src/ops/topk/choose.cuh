// The K largest of a row and its State in one read: a block a row, or a cluster of blocks.
//
// Every thread folds packs as a softmax does. A pack whose maximum is not above the threshold costs one compare;
// the threads' own maxima of the first tile make the threshold. Blocks of a cluster leave their K to the first,
// which has the whole row's.
#pragma once

#include "merge/cluster.cuh"
#include "merge/operators.hpp"
#include "merge/warp.cuh"
#include "ops/row/drive.cuh"
#include "ops/row/logits.cuh"
#include "ops/topk/best.cuh"
#include "ops/topk/select.hpp"

namespace onepass::ops::topk {

// What a kernel needs of a Select, beside the row's own arguments.
struct Outputs {
  RowSpace space;
  std::int64_t first_row;
  int k;
  TopkValues values;
  bool sorted;
  Operand out, indices, lse, target, target_logprob, target_rank;
};

// A row's state, and how many of its elements come before the target.
template <class T>
struct Tally {
  State<T> state;
  long long before;
};

template <class T>
struct MergeTallies {
  using Value = Tally<T>;
  __device__ static Value identity() { return {onepass::identity<T>(), 0}; }
  __device__ Value operator()(const Value& a, const Value& b) const {
    return {merge(a.state, b.state), a.before + b.before};
  }
};

template <class T>
__device__ inline Tally<T> group_fold(const Tally<T>& mine, MergeTallies<T>, int lanes) {
  return {onepass::group_fold(mine.state, Merge<T>(), lanes),
          onepass::group_fold(mine.before, Add<long long>(), lanes)};
}

template <class In, class Out>
class ChooseRow {
 public:
  using Logits = LogitsFor<In, Out>;
  using Args = typename Logits::Args;
  using T = typename Logits::T;
  using Stored = typename Logits::Stored;
  using Held = typename Logits::Held;
  using Edge = typename Logits::Edge;
  static constexpr int kLanes = Logits::kLanes;

  __device__ ChooseRow(const Args& args, std::int64_t row) : logits_(args, row) {}

  __device__ int packs() const { return logits_.packs(); }
  __device__ Stored fetch(int i) const { return logits_.fetch(i); }
  __device__ static Stored nothing() { return Logits::nothing(); }
  __device__ Held hold(const Stored& stored, int i, int end) const {
    return logits_.hold(stored, i, end);
  }
  __device__ int edges() const { return logits_.edges(); }
  __device__ T edge(int e) const { return Logits::value(logits_.fetch_edge(e)); }
  __device__ std::int64_t column(int i) const { return logits_.column(i); }
  __device__ std::int64_t edge_column(int e) const { return logits_.edge_column(e); }
  __device__ T at(std::int64_t c) const { return logits_.at(c); }

  template <int P>
  __device__ static State<T> fold(const Held (&held)[P], int live) {
    const T m = Logits::largest(held);
    const T s = shift(m);
    T d = 0;
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (p >= live) break;
      T z[kLanes];
      Logits::values(held[p], z);
#pragma unroll
      for (int k = 0; k < kLanes; ++k) d += exponential(z[k] - s);
    }
    return {m, d};
  }

  __device__ static void values(const Held& held, T (&z)[kLanes]) { Logits::values(held, z); }

 private:
  Logits logits_;
};

// Offers a thread's elements above the threshold, of the packs of a tile that `waiting` has a bit for. A whole
// warp offers together; the bits of packs for which there was no room stay.
template <class Row, int P>
__device__ inline unsigned offer_packs(const Row& row, const typename Row::Held (&tile)[P],
                                       unsigned waiting, int first, int step, BestKeys& best) {
  const float threshold = best.threshold();
#pragma unroll
  for (int p = 0; p < P; ++p) {
    if ((waiting >> p & 1) == 0) continue;
    typename Row::T z[Row::kLanes];
    Row::values(tile[p], z);
    int count = 0;
#pragma unroll
    for (int k = 0; k < Row::kLanes; ++k) count += z[k] > threshold ? 1 : 0;
    Key* to = nullptr;
    if (!best.reserve(count, to)) continue;
    waiting &= ~(1U << p);
    if (count == 0) continue;
    const auto column = static_cast<unsigned>(row.column(first + p * step));
#pragma unroll
    for (int k = 0; k < Row::kLanes; ++k) {
      if (z[k] > threshold) *to++ = key_of(static_cast<float>(z[k]), column + k);
    }
  }
  return waiting;
}

// Elements of a tile that come before the target.
template <class Row, int P, class Target>
__device__ inline long long before_target(const Row& row, const typename Row::Held (&tile)[P],
                                          int first, int step, int end, const Target& target) {
  int count = 0;
#pragma unroll
  for (int p = 0; p < P; ++p) {
    if (first + p * step >= end) break;
    typename Row::T z[Row::kLanes];
    Row::values(tile[p], z);
#pragma unroll
    for (int k = 0; k < Row::kLanes; ++k) {
      const std::int64_t column = row.column(first + p * step) + k;
      count += column >= 0 && target.follows(z[k], column) ? 1 : 0;
    }
  }
  return count;
}

template <class Row>
inline constexpr int kChoosePacks = kTakesAny<Row> ? 2 : 4;

// The token whose place is asked for: hidden or of no row, it has −inf.
template <class Row>
struct Target {
  std::int64_t index = -1;
  typename Row::T z = minus_infinity<typename Row::T>();

  __device__ Target(const Outputs& out, const Row& row, std::int64_t at) {
    if (!out.target) return;
    index = read<std::int64_t>(row_data(out.space, out.target, at), out.target.dtype, 0);
    if (index >= 0 && index < out.space.cols) z = row.at(index);
  }

  // Whether an element comes before it.
  __device__ bool follows(typename Row::T other, std::int64_t column) const {
    return other > z || (other == z && column < index);
  }
};

// One row's answer, by the block that has all of its keys.
template <class T>
class Answer {
 public:
  __device__ Answer(const Outputs& out, std::int64_t row, BestKeys::Shared& shared,
                    const Tally<T>& total)
      : out_(out), row_(row), shared_(shared), total_(total), lse_(logsumexp(total.state)) {}

  __device__ void write_all(const BlockFold<Add<float>>& block, std::int64_t target,
                            T target_z) const {
    const auto thread = static_cast<int>(threadIdx.x);
    const bool broken = lse_ != lse_;
    if (thread == 0) {
      put(out_.lse, 0, lse_);
      put(out_.target_logprob, 0, broken ? lse_ : log_probability(target_z));
      put(out_.target_rank, 0, broken || target < 0 ? -1LL : total_.before);
    }
    const int count = shared_.count;
    const float sum = broken ? 0 : sum_of_weights(block, count);
    if (!out_.sorted && !broken) by_index(count);
    for (int i = thread; i < out_.k; i += static_cast<int>(blockDim.x)) {
      if (broken) {
        put(out_.out, i, lse_);
        put(out_.indices, i, -1LL);
      } else if (i < count) {
        const Key key = out_.sorted ? shared_.keys[i] : turned(shared_.keys[i]);
        put(out_.indices, i, static_cast<long long>(index_of(key)));
        put(out_.out, i, value(static_cast<T>(value_of(key)), sum));
      }
    }
    if (!broken && count < out_.k && thread == 0) fill_up(count, sum);
  }

 private:
  template <class Value>
  __device__ void put(const Operand& to, std::int64_t column, Value v) const {
    if (to) write(row_data(out_.space, to, row_), to.dtype, column * to.col_stride, v);
  }

  __device__ float sum_of_weights(const BlockFold<Add<float>>& block, int count) const {
    float mine = 0;
    if (out_.values == TopkValues::renormalized) {
      for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
        mine += static_cast<float>(weight(total_.state, static_cast<T>(value_of(shared_.keys[i]))));
      }
    }
    return block.all(mine);
  }

  __device__ T log_probability(T z) const {
    const State<T>& row = total_.state;
    if (row.d == T(0) || z == minus_infinity<T>()) return minus_infinity<T>();
    return (z - row.m) - log(row.d);
  }

  __device__ T value(T z, float sum) const {
    switch (out_.values) {
      case TopkValues::logit: return z;
      case TopkValues::log_probability: return log_probability(z);
      case TopkValues::renormalized:
        return sum == 0 ? T(0) : weight(total_.state, z) / static_cast<T>(sum);
      default: return weight(total_.state, z);
    }
  }

  // Keys with the index before the value, so that they order by index; and back.
  __device__ static Key turned(Key key) { return key << 32 | key >> 32; }
  __device__ void by_index(int count) const {
    int size = 2;
    while (size < count) size *= 2;
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < size; i += static_cast<int>(blockDim.x)) {
      shared_.keys[i] = i < count ? turned(shared_.keys[i]) : 0;
    }
    sort_descending(shared_.keys, size);
  }

  // Where fewer than K are above −inf: the others by index.
  __device__ void fill_up(int count, float sum) const {
    unsigned next = 0;
    for (int i = count; i < out_.k; ++next) {
      bool taken = false;
      for (int j = 0; j < count && !taken; ++j) {
        taken = index_of(out_.sorted ? shared_.keys[j] : turned(shared_.keys[j])) == next;
      }
      if (taken) continue;
      put(out_.indices, i, static_cast<long long>(next));
      put(out_.out, i, value(minus_infinity<T>(), sum));
      ++i;
    }
  }

  const Outputs& out_;
  std::int64_t row_;
  BestKeys::Shared& shared_;
  Tally<T> total_;
  T lse_;
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// The keys of all blocks of a cluster to its first.
__device__ inline void gather_keys(BestKeys& best, BestKeys::Shared& shared) {
  const auto size = static_cast<int>(__clusterSizeInBlocks());
  if (size == 1) return;
  __cluster_barrier_arrive();
  __cluster_barrier_wait();
  if (__clusterRelativeBlockRank() == 0) {
    for (int r = 1; r < size; ++r) {
      const auto* theirs = static_cast<const BestKeys::Shared*>(
          __cluster_map_shared_rank(&shared, static_cast<unsigned>(r)));
      const int count = theirs->count;
      for (int first = 0; first < count; first += static_cast<int>(blockDim.x)) {
        const int i = first + static_cast<int>(threadIdx.x);
        const Key key = i < count ? theirs->keys[i] : 0;
        bool waits = true;
        do {
          const bool passes = i < count && value_of(key) > best.threshold();
          Key* to = nullptr;
          if (waits && best.reserve(passes ? 1 : 0, to)) {
            if (passes) *to = key;
            waits = false;
          }
          if (!__syncthreads_or(waits)) break;
          best.cut();
        } while (true);
      }
    }
    best.cut();
  }
  __cluster_barrier_arrive();  // nobody ends while his keys are read
  __cluster_barrier_wait();
}

#else

__device__ inline void gather_keys(BestKeys&, BestKeys::Shared&) {}

#endif

template <class Row>
__global__ __launch_bounds__(gpu_rows::kBlockThreads, kTakesAny<Row> ? 1 : 2) void choose_rows(
    const __grid_constant__ typename Row::Args args, const __grid_constant__ Outputs out,
    int size) {
  using T = typename Row::T;
  using Join = MergeTallies<T>;
  constexpr int P = kChoosePacks<Row>;
  extern __shared__ __align__(16) std::byte memory[];
  auto& shared = *reinterpret_cast<BestKeys::Shared*>(memory);
  __shared__ typename ClusterFold<Join>::Scratch scratch;
  __shared__ BlockFold<Add<float>>::Scratch sums;
  const ClusterFold<Join> cluster(scratch);
  const std::int64_t at = out.first_row + cluster.index();
  const Row row(args, at);
  const Target<Row> target(out, row, at);
  const auto thread = static_cast<int>(threadIdx.x);
  const auto step = static_cast<int>(blockDim.x);
  const int begin = min(size * cluster.rank(), row.packs());
  const int end = min(begin + size, row.packs());
  BestKeys best(shared, out.k);
  Tally<T> mine = Join::identity();
  // Edges are few, and the first to come.
  if (cluster.rank() == 0) {
    for (int e = 0; e < row.edges(); e += step) {
      const bool has = e + thread < row.edges();
      const T z = has ? row.edge(e + thread) : minus_infinity<T>();
      const std::int64_t column = has ? row.edge_column(e + thread) : 0;
      mine.state = merge(mine.state, leaf(z));
      if (out.target_rank && has) mine.before += target.follows(z, column) ? 1 : 0;
      const bool passes = has && z > minus_infinity<T>();
      Key* to = nullptr;
      if (best.reserve(passes ? 1 : 0, to) && passes) {
        *to = key_of(static_cast<float>(z), static_cast<unsigned>(column));
      }
    }
  }
  for (int i = begin; i < end; i += P * step) {
    typename Row::Held tile[P];
    hold_packs(row, i + thread, step, end, tile);
    const State<T> folded = Row::fold(tile, live_packs<P>(i + thread / kWarp * kWarp, step, end));
    mine.state = merge(mine.state, folded);
    if (out.target_rank) mine.before += before_target(row, tile, i + thread, step, end, target);
    const auto m = static_cast<float>(folded.m);
    const float largest = m == m ? m : minus_infinity<float>();
    if (i == begin) best.bound(largest);
    unsigned waiting = 0;
    if (__any_sync(0xFFFFFFFFU, largest > best.threshold())) {
      waiting = offer_packs(row, tile, (1U << P) - 1, i + thread, step, best);
    }
    while (__syncthreads_or(static_cast<int>(waiting)) != 0) {
      best.bound(largest);
      best.cut();
      if (waiting != 0) waiting = offer_packs(row, tile, waiting, i + thread, step, best);
    }
  }
  const Tally<T> total = cluster.all(mine);
  best.cut();
  gather_keys(best, shared);
  if (cluster.rank() == 0) {
    const Answer<T> answer(out, at, shared, total);
    answer.write_all(BlockFold<Add<float>>(sums), target.index, target.z);
  }
}

}  // namespace onepass::ops::topk

// Rows that follow one another through a team of blocks, in three stages: one is written, the next is folded,
// and two more are on their way to shared memory. For dense rows, where a team has several.
#pragma once

#include "core/pack.cuh"
#include "ops/row/launch.cuh"

namespace onepass {

// One block's chunk of row after row. A thread has every kThreads-th pack of it, P at most: it asks for them and
// finds them in slots of its own, so that it waits for nobody. Rows take turns between two sets of slots; what
// was folded is lifted into registers, and its slots are free.
template <class Row, int P>
class Pipeline {
 public:
  using Partial = typename Row::Partial;
  using Held = typename Row::Held;
  static_assert(std::is_same_v<Held, typename Row::Stored>, "packs are kept as they are stored");

  // Chunks of `size` packs, of which this block has the index-th.
  __device__ Pipeline(int size, int index, Held* slots)
      : size_(size), index_(index), slots_(slots + threadIdx.x) {}

  // Rows are asked for in the order of their turns, two ahead of the fold.
  __device__ void ask(const Row& row, int turn) const {
    const Packs packs = packs_of(row);
#pragma unroll
    for (int k = 0; k < P; ++k) {
      if (packs.has(k)) row.ask(packs.at(k), &slot(k, turn));
    }
  }

  __device__ Partial fold(const Row& row, int turn) {
    const Packs packs = packs_of(row);
    if (index_ == 0) next_edge_ = row.fetch_edge(thread());
    Partial mine = Row::Join::identity();
#pragma unroll
    for (int k = 0; k < P; k += kTile) {
      if (!packs.some(k)) break;
      Held tile[kTile];
      lift(packs, k, turn, tile);
      mine = typename Row::Join()(mine, row.fold(tile, packs.template live<kTile>(k)));
    }
    if (index_ == 0) fold_edges(row, thread(), kThreads, next_edge_, mine);
    return mine;
  }

  // What was folded, out of the way of what is asked for next.
  __device__ void lift(const Row& row, int turn) {
    lift(packs_of(row), 0, turn, held_);
    edge_ = next_edge_;
  }

  // What was lifted.
  __device__ void finish(const Row& row, const Partial& total) const {
    if (!row.writes()) return;
    const Packs packs = packs_of(row);
    const typename Row::Scale scale = row.scale(total);
    finish_packs(row, packs.first, kThreads, packs.end, held_, scale);
    if (index_ == 0) finish_edges(row, thread(), kThreads, edge_, scale);
  }

 private:
  static constexpr int kThreads = gpu_rows::kBlockThreads;
  static constexpr int kTile = P % 3 == 0 ? 3 : 2;

  // A thread's packs of a chunk: at(0), at(1), … before `end`.
  struct Packs {
    int first, end;
    __device__ int at(int k) const { return first + k * kThreads; }
    __device__ bool has(int k) const { return at(k) < end; }
    __device__ int of_warp(int k) const { return at(k) - thread() % kWarp; }
    __device__ bool some(int k) const { return of_warp(k) < end; }  // in this warp
    template <int N>
    __device__ int live(int k) const {
      return live_packs<N>(of_warp(k), kThreads, end);
    }
  };

  __device__ static int thread() { return static_cast<int>(threadIdx.x); }

  __device__ Packs packs_of(const Row& row) const {
    const int begin = min(size_ * index_, row.packs());
    return {begin + thread(), min(begin + size_, row.packs())};
  }

  __device__ Held& slot(int k, int turn) const { return slots_[(turn % 2 * P + k) * kThreads]; }

  template <int N>
  __device__ void lift(Packs packs, int k, int turn, Held (&to)[N]) const {
#pragma unroll
    for (int p = 0; p < N; ++p) to[p] = packs.has(k + p) ? slot(k + p, turn) : Row::nothing();
  }

  int size_, index_;
  Held* slots_;
  Held held_[P];
  typename Row::Edge edge_{}, next_edge_{};
};

template <class Row>
inline constexpr int kPipelinePacks = gpu_rows::kPipelineBytes /
                                      static_cast<int>(sizeof(typename Row::Held));

// The rows of a team. A Team knows which it is, how many there are, which of its blocks this one is, and folds
// what they all have. Every team has a row.
template <class Row, class Team>
__device__ inline void pipeline_rows(const typename Row::Args& args, const Team& team, int size) {
  extern __shared__ __align__(16) std::byte slots[];
  Pipeline<Row, kPipelinePacks<Row>> pipeline(size, team.rank(),
                                              reinterpret_cast<typename Row::Held*>(slots));
  const auto count =
      static_cast<int>((args.end_row - args.first_row - team.index() - 1) / team.count()) + 1;
  const auto row_of_turn = [&](int turn) {
    return Row(args, args.first_row + team.index() + std::int64_t{turn} * team.count());
  };
  const auto ask = [&](int turn) {
    if (turn < count) pipeline.ask(row_of_turn(turn), turn);
    commit_copies();
  };
  ask(0);
  ask(1);
  for (int turn = 0; turn <= count; ++turn) {
    typename Row::Partial mine, total;
    if (turn < count) {
      wait_for_copies<1>();
      mine = pipeline.fold(row_of_turn(turn), turn);
    }
    if (turn > 0) total = team.get(turn - 1);
    if (turn < count) team.put(mine, turn);
    if (turn > 0) {
      const Row row = row_of_turn(turn - 1);
      pipeline.finish(row, total);
      if (team.rank() == 0 && threadIdx.x == 0) row.conclude(total);
    }
    if (turn < count) pipeline.lift(row_of_turn(turn), turn);
    ask(turn + 2);
  }
}

// A cluster of blocks, or one.
template <class Join>
class ClusterTeam {
 public:
  using Value = typename Join::Value;
  using Slots = typename ClusterFold<Join>::Slots[2];

  __device__ explicit ClusterTeam(Slots& slots) : fold_(slots) {}

  __device__ std::int64_t index() const { return cluster_index(); }
  __device__ int count() const { return static_cast<int>(gridDim.x) / cluster_size(); }
  __device__ int rank() const { return cluster_rank(); }
  __device__ void put(const Value& mine, int turn) const { fold_.put(mine, turn); }
  __device__ Value get(int turn) const { return fold_.get(turn); }

 private:
  ClusterFold<Join> fold_;
};

template <class Row>
__global__ __launch_bounds__(gpu_rows::kBlockThreads,
                             gpu_rows::kBlocksAtOnce) void cluster_pipeline(const __grid_constant__
                                                                            typename Row::Args args,
                                                                            int size) {
  using Team = ClusterTeam<typename Row::Join>;
  __shared__ typename Team::Slots slots;
  pipeline_rows<Row>(args, Team(slots), size);
}

// plan.split blocks a cluster, as many clusters as run at once.
template <class Rows>
Status run_pipeline(const RowArgs& args, const Plan& plan) {
  return with_row<Rows>(args, plan, [&]<class Row>(Type<Row>) {
    if constexpr (kTakesAny<Row>) {
      return Status{Code::internal, "gpu_pipeline: a row that is not dense"};
    } else {
      return launch_clusters(cluster_pipeline<Row>, args, plan, plan.chunk);
    }
  });
}

}  // namespace onepass

// The Hopper kernel's parts: its tile, what lies in shared memory, what loads and what computes.
#pragma once

#include "core/mma.cuh"
#include "core/number.cuh"
#include "core/tma.cuh"
#include "core/wgmma.cuh"
#include "dispatch/attention_tiles.hpp"
#include "ops/attention/args.hpp"
#include "ops/attention/online.cuh"

namespace onepass::ops::attention::hopper {

inline constexpr int kWarpgroup = 128;
inline constexpr int kRows = 64;     // of queries, a warpgroup
inline constexpr int kColumns = 64;  // of 16 bits: a swizzled row of 128 bytes

inline constexpr int kMostShared = 225 * 1024;  // of the 227 KB that a block can have

// One block: a warpgroup that loads, and some that compute 64 rows of queries each.
template <int Dim, int Groups, int Keys>
struct Tile {
  static constexpr int kDim = Dim;
  static constexpr int kGroups = Groups;
  static constexpr int kQueries = Groups * kRows;
  static constexpr int kKeys = Keys;
  static constexpr int kStages = 2;
  static constexpr int kThreads = (Groups + 1) * kWarpgroup;
  static constexpr int kPanels = (Dim + kColumns - 1) / kColumns;  // of 64 columns
  static constexpr int kQueryBytes = kPanels * kColumns * 2 * kQueries;
  static constexpr int kKeyBytes = kPanels * kColumns * 2 * Keys;
  // The next tile of queries comes early where there is room for it.
  static constexpr int kQueryStages =
      2 * kQueryBytes + 2 * kStages * kKeyBytes <= kMostShared ? 2 : 1;
  // And results go by the copy engine.
  static constexpr bool kStaged =
      (kQueryStages + 1) * kQueryBytes + 2 * kStages * kKeyBytes <= kMostShared;
  // They come out of what the block was launched with: as many as fit for all of its threads, in eights.
  static constexpr int kLoaderRegisters = Groups == 2 ? 24 : 32;
  static constexpr int kRegisters = Groups == 2 ? 240 : 160;
  static_assert((kLoaderRegisters + Groups * kRegisters) * kWarpgroup <=
                65536 / kThreads / 8 * 8 * kThreads);
};

// A tile of queries and the keys that it sees.
struct Job {
  int batch, head;  // batch −1: there are no more
  int first_query;
  attention_tiles::KeyTiles keys;
};

// Known at a time: those with queries in shared memory, and the one before, whose sums may be under way.
inline constexpr unsigned kJobs = 4;

template <class Stored, class Tile>
struct Shared {
  template <int Rows>
  using Panels = Stored[Tile::kPanels][Rows][kColumns];

  alignas(1024) Panels<Tile::kQueries> q[Tile::kQueryStages];
  alignas(1024) Panels<Tile::kKeys> k[Tile::kStages];
  alignas(1024) Panels<Tile::kKeys> v[Tile::kStages];
  Panels<Tile::kStaged ? Tile::kQueries : 1> o;  // of which each warpgroup has its rows
  tma::Ring<Tile::kQueryStages> q_ring;
  tma::Ring<Tile::kStages> k_ring, v_ring;
  Job jobs[kJobs];

  __device__ const Job& job(unsigned number) const { return jobs[number % kJobs]; }

  // By the loader: what comes next, with so many bytes of queries.
  __device__ Mbarrier& say(unsigned number, const Job& job, int bytes) {
    const int stage = q_ring.stage(number);
    q_ring.wait_empty(number);
    jobs[number % kJobs] = job;
    tma::arrive_and_expect(q_ring.full[stage], bytes);
    return q_ring.full[stage];
  }
};

struct Params {
  CUtensorMap q, k, v, out;
  attention_tiles::Schedule schedule;
  attention_tiles::Sight sight;
  int heads, sharing;  // heads of a batch; of them, that share one of k and v
  bool plain;          // z = s · scale, and scale > 0
  float scale;
  Cap cap;  // where not
  Heads o, lse, sinks;
};

// The tile of queries that comes next, and with it what to do: that costs divisions, which nobody waits for here.
template <class Tile>
__device__ inline Job next_job(const Params& p, attention_tiles::Walk& walk) {
  if (walk.done()) return {.batch = -1};
  const attention_tiles::Work work = walk.work();
  walk.advance();
  Job job{work.head / p.heads, work.head % p.heads, work.query_tile * Tile::kQueries};
  job.keys = attention_tiles::key_tiles(p.sight, job.first_query, Tile::kQueries, Tile::kKeys);
  return job;
}

// All that a block reads, in the order in which it is computed with. Keys go from the last tile to the first, because
// masks by place mostly cut the last. Where there is room, the queries of a tile come while the one before is computed.
template <class Stored, class Tile>
__device__ inline void load_all(const Params& p, Shared<Stored, Tile>& shared) {
  constexpr bool kEarly = Tile::kQueryStages > 1;
  const auto load = [](auto& panels, const CUtensorMap& map, int token, int head, int batch,
                       Mbarrier& barrier) {
#pragma unroll
    for (int i = 0; i < Tile::kPanels; ++i) {
      tma::load(panels[i], map, {i * kColumns, token, head, batch}, barrier);
    }
  };
  unsigned said = 0, step = 0;
  const auto say = [&](const Job& job) {
    const bool any = job.batch >= 0 && job.keys.begin < job.keys.end;
    Mbarrier& barrier = shared.say(said, job, any ? Tile::kQueryBytes : 0);
    if (any) {
      load(shared.q[shared.q_ring.stage(said)], p.q, job.first_query, job.head, job.batch, barrier);
    }
    ++said;
  };
  attention_tiles::Walk walk(p.schedule, blockIdx.x, gridDim.x);
  Job job = next_job<Tile>(p, walk);
  if (kEarly) say(job);
  while (job.batch >= 0) {
    const Job after = next_job<Tile>(p, walk);
    const int kv_head = job.head / p.sharing;
    for (int tile = job.keys.end - 1; tile >= job.keys.begin; --tile, ++step) {
      const bool first = tile == job.keys.end - 1;
      const int key = tile * Tile::kKeys;
      const int stage = shared.k_ring.stage(step);
      load(shared.k[stage], p.k, key, kv_head, job.batch,
           shared.k_ring.fill(step, Tile::kKeyBytes));
      if (first && !kEarly) say(job);
      load(shared.v[stage], p.v, key, kv_head, job.batch,
           shared.v_ring.fill(step, Tile::kKeyBytes));
      if (first && kEarly) say(after);
    }
    if (job.keys.begin == job.keys.end) say(kEarly ? after : job);
    job = after;
  }
  if (!kEarly) say(job);
}

// Warpgroups take turns at the tensor cores: while one has its products issued, the next exponentiates. A barrier
// of the block each, by number; 0 is __syncthreads'.
template <int Groups>
class PingPong {
 public:
  __device__ explicit PingPong(int group) : group_(group) {
    if (group == Groups - 1) pass();
  }
  __device__ void take() const {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + group_), "n"(2 * kWarpgroup) : "memory");
  }
  __device__ void pass() const {
    const int next = group_ + 1 == Groups ? 0 : group_ + 1;
    asm volatile("bar.arrive %0, %1;" ::"r"(1 + next), "n"(2 * kWarpgroup) : "memory");
  }

 private:
  int group_;
};

// One warpgroup: 64 rows of queries of every tile.
template <class Stored, class Tile>
class Consumer {
  static constexpr int kSteps = Tile::kDim / 16;  // of a product over the dim, and
  static constexpr int kKeySteps = Tile::kKeys / 16;
  using Scores = float[Tile::kKeys / 2];
  using Sums = float[Tile::kDim / 2];
  using Weights = unsigned[kKeySteps][4];
  // Measured (docs/facts.md): with as many as dim 256 has it pays to shrink them seldom and to wait for them late.
  static constexpr bool kManySums = Tile::kDim > 64;

 public:
  __device__ Consumer(const Params& p, Shared<Stored, Tile>& shared, int group)
      : p_(p),
        shared_(shared),
        group_(group),
        thread_(static_cast<int>(threadIdx.x) % kWarpgroup),
        turns_(group) {}

  // A step is a tile of keys. The products of its scores run beside those of the values of the step before, which
  // may be another tile of queries, and both beside the exponentials of the other warpgroups. Products and waits
  // stand outside of all branches: inside, the compiler would wait after each product.
  __device__ void run() {
    const float unit = (p_.plain ? p_.scale : 1.F) * kLog2E;
    Online online(unit);
    Scores s;
    Sums o{};
    Weights weights{};  // before the first step there is nothing to sum
    const auto finish_sums = [&] {
      if (owner_ == nullptr) return;
      shared_.v_ring.wait_full(step_ - 1);
      issue_sums(o, weights);
      leave_sums(o);
      finish(*owner_, online, o);
      owner_ = nullptr;
    };

#pragma unroll 1
    for (;; ++jobs_) {
      shared_.q_ring.wait_full(jobs_);
      const Job& job = shared_.job(jobs_);
      if (job.batch < 0) break;
      const attention_tiles::KeyTiles keys = job.keys;
      if (keys.begin == keys.end || first_row(job) >= p_.sight.queries) {
        finish_sums();
        pass_by(job);
        continue;
      }
      int tile = keys.end - 1;
      issue(s, o, weights);
      leave_scores(s, tile == keys.begin);
      const Online before = online;
      online = Online(unit);
      float by[2];
      weigh(job, keys.whole(tile), tile, online, s, by);
      leave_sums(o);
      narrow_weights<Stored>(s, weights);
      if (owner_ != nullptr) finish(*owner_, before, o);
#pragma unroll
      for (float& x : o) x = 0;
      owner_ = &job;
      ++step_;
#pragma unroll 1
      for (--tile; tile >= keys.begin; --tile, ++step_) {
        issue(s, o, weights);
        leave_scores(s, tile == keys.begin);
        weigh(job, keys.whole(tile), tile, online, s, by);
        leave_sums(o);
        shrink<kManySums>(o, by);
        narrow_weights<Stored>(s, weights);
      }
    }
    finish_sums();
    if (thread_ == 0) tma::wait_stores();
  }

 private:
  // The scores of this step and the sums of the one before.
  __device__ void issue(Scores& s, Sums& o, const Weights& weights) const {
    shared_.k_ring.wait_full(step_);
    turns_.take();
    issue_scores(s);
    if (owner_ != nullptr) shared_.v_ring.wait_full(step_ - 1);
    issue_sums(o, weights);
    turns_.pass();
  }

  __device__ void leave_scores(Scores& s, bool last) const {
    wgmma::wait<1>();
    wgmma::pin(s);
    if (thread_ != 0) return;
    shared_.k_ring.leave(step_);
    if (last) shared_.q_ring.leave(jobs_);
  }

  __device__ void leave_sums(Sums& o) const {
    wgmma::wait<0>();
    wgmma::pin(o);
    if (thread_ == 0 && owner_ != nullptr) shared_.v_ring.leave(step_ - 1);
  }

  // Of this warpgroup's.
  __device__ int first_row(const Job& job) const { return job.first_query + group_ * kRows; }

  // The upper of this thread's two rows; the lower is 8 further.
  __device__ int row(const Job& job) const {
    return first_row(job) + thread_ / 32 * 16 + thread_ % 32 / 4;
  }

  __device__ void issue_scores(Scores& s) const {
    const std::uint64_t left =
        wgmma::operand(&shared_.q[shared_.q_ring.stage(jobs_)][0][group_ * kRows][0]);
    const std::uint64_t right = wgmma::operand(&shared_.k[shared_.k_ring.stage(step_)][0][0][0]);
    wgmma::fence();
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      // 16 columns are 32 bytes of a swizzled row; addresses in operands count 16.
      const int panel = 16 * i / kColumns;
      const int column = 16 * i % kColumns * 2 / 16;
      const auto at_left = left + panel * (sizeof shared_.q[0][0] / 16) + column;
      const auto at_right = right + panel * (sizeof shared_.k[0][0] / 16) + column;
      i == 0 ? wgmma::scores<Stored, false>(s, at_left, at_right)
             : wgmma::scores<Stored, true>(s, at_left, at_right);
    }
    wgmma::commit();
  }

  __device__ void issue_sums(Sums& o, const Weights& weights) const {
    const auto& v = shared_.v[shared_.v_ring.stage(step_ - 1)];
    const std::uint64_t right = wgmma::operand(&v[0][0][0], sizeof v[0]);
    wgmma::fence();
#pragma unroll
    for (int i = 0; i < kKeySteps; ++i) {
      wgmma::sums<Stored>(o, weights[i], right + i * (16 * sizeof v[0][0] / 16));
    }
    wgmma::commit();
  }

  // Scores of a tile to weights.
  __device__ void weigh(const Job& job, bool whole, int tile, Online& online, Scores& s,
                        float (&by)[2]) const {
    if (!p_.plain) {
      const Cap& cap = p_.cap;
      if (cap.any()) {
#pragma unroll
        for (float& x : s) x = cap.capped(x);
      } else {
#pragma unroll
        for (float& x : s) x = cap.scaled(x);
      }
    }
    if (!whole) {
      const int upper = row(job);
      const Seen seen{{p_.sight.begin(upper), p_.sight.begin(upper + 8)},
                      {p_.sight.end(upper), p_.sight.end(upper + 8)}};
      hide(s, seen, tile * Tile::kKeys + thread_ % 4 * 2);
    }
    online.absorb(s, by);
    // The assembler would move the wait for the sums above all this. Past what may end the kernel it moves nothing.
    if constexpr (kManySums) {
      if (online.never()) __trap();
    }
  }

  // The sums of two rows to their place, as means.
  __device__ void finish(const Job& job, const Online& online, const Sums& o) const {
    const int batch = job.batch;
    const int head = job.head;
    const int upper = row(job);
    const State<float> sink =
        p_.sinks ? leaf(read<float>(p_.sinks.data, p_.sinks.dtype, p_.sinks.offset(0, head, 0)))
                 : identity<float>();
    float by[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const State<float> seen = online.row(r);
      const State<float> all = p_.sinks ? merge(seen, sink) : seen;
      by[r] = factor(all, seen.m);
      if (upper + 8 * r < p_.sight.queries) write_lse(batch, head, upper + 8 * r, all);
    }
    if constexpr (Tile::kStaged) {
      store_staged(job, o, by);
    } else {
      store(job, o, by);
    }
  }

  // Four neighbouring lanes write 64 bytes of a row.
  __device__ void store(const Job& job, const Sums& o, const float (&by)[2]) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      unsigned words[Tile::kDim / 8];
#pragma unroll
      for (int i = 0; i < Tile::kDim / 8; ++i) {
        words[i] = narrow_pair<Stored>(o[4 * i + 2 * r] * by[r], o[4 * i + 2 * r + 1] * by[r]);
      }
      gather_sixteens(words);
      const int query = row(job) + 8 * r;
      if (query >= p_.sight.queries) continue;
      auto* to = static_cast<Stored*>(p_.o.data) + p_.o.offset(job.batch, job.head, query) +
                 thread_ % 4 * 8;
#pragma unroll
      for (int i = 0; i < Tile::kDim / 32; ++i) {
        *reinterpret_cast<uint4*>(to + 32 * i) =
            make_uint4(words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]);
      }
    }
  }

  // By the copy engine, from shared memory that is swizzled as the tiles that come are.
  __device__ void store_staged(const Job& job, const Sums& o, const float (&by)[2]) const {
    if (thread_ == 0) tma::wait_stores();  // of the tile before
    sync();
    const int lane = thread_ % 32;
    const unsigned to =
        shared_address(&shared_.o[0][group_ * kRows + thread_ / 32 * 16 + lane % 16][0]);
    const auto turn = static_cast<unsigned>(lane / 16 ^ lane % 8);
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      unsigned words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int at = 8 * i + 2 * j;
        words[j] = narrow_pair<Stored>(o[at] * by[j % 2], o[at + 1] * by[j % 2]);
      }
      const unsigned panel = 16 * i / kColumns;
      mma::store4(to + panel * sizeof shared_.o[0] + (turn ^ 2 * i % 8) * 16, words);
    }
    tma::publish();
    sync();
    if (thread_ != 0) return;
#pragma unroll
    for (int i = 0; i < Tile::kPanels; ++i) {
      tma::store(p_.out, {i * kColumns, first_row(job), job.head, job.batch},
                 shared_.o[i][group_ * kRows]);
    }
    tma::commit_stores();
  }

  // A tile without rows for this warpgroup, of which it reads nothing; or without keys: zeros, and the sink.
  __device__ void pass_by(const Job& job) {
    if (first_row(job) < p_.sight.queries) finish(job, Online(kLog2E), Sums{});
#pragma unroll 1
    for (int tile = job.keys.begin; tile < job.keys.end; ++tile, ++step_) {
      shared_.k_ring.wait_full(step_);
      turns_.take();
      turns_.pass();
      shared_.v_ring.wait_full(step_);
      if (thread_ != 0) continue;
      shared_.k_ring.leave(step_);
      shared_.v_ring.leave(step_);
    }
    if (thread_ == 0) shared_.q_ring.leave(jobs_);
  }

  // Of the warpgroup.
  __device__ void sync() const {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + Tile::kGroups + group_), "n"(kWarpgroup) : "memory");
  }

  __device__ void write_lse(int batch, int head, int query, const State<float>& row) const {
    if (!p_.lse || thread_ % 4 != 0) return;
    const std::int64_t at = p_.lse.offset(batch, head, query);
    if (p_.lse.dtype == DType::f64) {
      static_cast<double*>(p_.lse.data)[at] = logsumexp(row);
    } else {
      static_cast<float*>(p_.lse.data)[at] = logsumexp(row);
    }
  }

  const Params& p_;
  Shared<Stored, Tile>& shared_;
  int group_, thread_;
  PingPong<Tile::kGroups> turns_;
  unsigned step_ = 0;           // tiles of keys so far, and
  unsigned jobs_ = 0;           // of queries
  const Job* owner_ = nullptr;  // whose sums are under way
};

}  // namespace onepass::ops::attention::hopper

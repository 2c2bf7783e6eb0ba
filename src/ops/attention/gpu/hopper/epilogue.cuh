// A warpgroup's 64 rows of a tile of queries: which they are, and how their results
// go to their place.
#pragma once

#include "core/cuda/mma.cuh"
#include "core/cuda/number.cuh"
#include "ops/attention/gpu/hopper/producer.cuh"

namespace onepass::ops::attention::hopper {

template <class Stored, class Tile>
class Rows {
 public:
  const int group, thread;  // among the warpgroups that compute, and in it

  __device__ Rows(const Params& p, Shared<Stored, Tile>& shared, int number)
      : group(number), thread(static_cast<int>(threadIdx.x) % kWarpgroup), p_(p), shared_(shared) {}

  __device__ const Sight& sight(const Job& job) const {
    return Tile::kRagged ? job.sight : p_.sight;
  }

  __device__ bool leads() const { return thread % 32 == 0; }

  // A query's place in the tensor.
  __device__ static int token(const Job& job, int query) {
    return Tile::kRagged ? job.q_token + query : query;
  }

  // Of this warpgroup's.
  __device__ int first_row(const Job& job) const { return job.first_query + group * kRows; }

  __device__ bool any(const Job& job) const {
    return first_row(job) >= 0 && first_row(job) < sight(job).queries;
  }

  // The upper of this thread's two rows; the lower is 8 further.
  __device__ int row(const Job& job) const {
    return first_row(job) + thread / 32 * 16 + thread % 32 / 4;
  }

  // Of the warpgroup.
  __device__ void sync() const {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + Tile::kGroups + group), "n"(kWarpgroup) : "memory");
  }

  // The sums of two rows to their place, as means.
  __device__ void finish(const Job& job, const Online& online,
                         const float (&o)[Tile::kDim / 2]) const {
    const Heads& sinks = p_.sinks;
    const int upper = row(job);
    const State<float> sink =
        sinks ? leaf(read_like<float>(sinks.data, sinks.dtype, sinks.offset(0, job.head, 0)))
              : identity<float>();
    float by[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const State<float> seen = online.row(r);
      const State<float> all = sinks ? merge(seen, sink) : seen;
      by[r] = factor(all, seen.m);
      if (upper + 8 * r < sight(job).queries) write_lse(job, upper + 8 * r, all);
    }
    if constexpr (Tile::kStaged) {
      store_staged(job, o, by);
    } else {
      store(job, o, by);
    }
  }

 private:
  // Four neighbouring lanes write 64 bytes of a row.
  __device__ void store(const Job& job, const float (&o)[Tile::kDim / 2],
                        const float (&by)[2]) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      unsigned words[Tile::kDim / 8];
#pragma unroll
      for (int i = 0; i < Tile::kDim / 8; ++i) {
        words[i] = narrow_pair<Stored>(o[4 * i + 2 * r] * by[r], o[4 * i + 2 * r + 1] * by[r]);
      }
      gather_sixteens(words);
      const int query = row(job) + 8 * r;
      if (query >= sight(job).queries) continue;
      Stored* to = row_of_o(job, query) + thread % 4 * 8;
#pragma unroll
      for (int i = 0; i < Tile::kDim / 32; ++i) {
        *reinterpret_cast<uint4*>(to + 32 * i) =
            make_uint4(words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]);
      }
    }
  }

  // By the copy engine, from shared memory that is swizzled as the tiles that come are.
  __device__ void store_staged(const Job& job, const float (&o)[Tile::kDim / 2],
                               const float (&by)[2]) const {
    if (thread == 0) tma::wait_stores();  // of the tile before
    sync();
    const int lane = thread % 32;
    const unsigned to =
        shared_address(&shared_.o[0][group * kRows + thread / 32 * 16 + lane % 16][0]);
    const auto turn = static_cast<unsigned>(lane / 16 ^ lane % 8);
#pragma unroll
    for (int i = 0; i < Tile::kDim / 16; ++i) {
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
    if constexpr (Tile::kRagged) {
      const int rows = job.sight.queries - first_row(job);
      if (p_.packed && rows < kRows) {
        copy_rows(job, rows);  // past the last lie another sequence's
        return;
      }
    }
    if (thread != 0) return;
#pragma unroll
    for (int i = 0; i < Tile::kPanels; ++i) {
      tma::store(p_.out, {i * kColumns, token(job, first_row(job)), job.head, job.batch},
                 shared_.o[i][group * kRows]);
    }
    tma::commit_stores();
  }

  // By the threads themselves, out of shared memory.
  __device__ void copy_rows(const Job& job, int rows) const {
    constexpr int kSixteens = Tile::kDim / 8;  // a row
#pragma unroll 1
    for (int i = thread; i < rows * kSixteens; i += kWarpgroup) {
      const int row = i / kSixteens;
      const int chunk = i % kSixteens;
      const auto* from = reinterpret_cast<const uint4*>(shared_.o[chunk / 8][group * kRows + row]);
      auto* to = reinterpret_cast<uint4*>(row_of_o(job, first_row(job) + row));
      to[chunk] = from[chunk % 8 ^ row % 8];
    }
  }

  __device__ Stored* row_of_o(const Job& job, int query) const {
    const Heads& o = p_.o;
    return static_cast<Stored*>(o.data) + o.offset(job.batch, job.head, token(job, query));
  }

  __device__ void write_lse(const Job& job, int query, const State<float>& row) const {
    const Heads& lse = p_.lse;
    if (!lse || thread % 4 != 0) return;
    const std::int64_t at = lse.offset(job.batch, job.head, token(job, query));
    if (lse.dtype == DType::f64) {
      static_cast<double*>(lse.data)[at] = logsumexp(row);
    } else {
      static_cast<float*>(lse.data)[at] = logsumexp(row);
    }
  }

  const Params& p_;
  Shared<Stored, Tile>& shared_;
};

}  // namespace onepass::ops::attention::hopper

// What every way to draw a token has in common: a row's options, who wins among candidates,
// what is written.
#pragma once

#include "merge/warp_rows.cuh"
#include "ops/select/args.hpp"
#include "ops/select/gpu/answer.cuh"
#include "ops/select/gpu/race.cuh"
#include "ops/select/gumbel.hpp"
#include "rows/packs.hpp"

namespace onepass::ops::select {

template <class Place>
struct SampleOptionsOfRows {
  EachRowAt<double, Place> top_p, min_p;
  EachRowAt<std::int64_t, Place> top_k, seed, offset;
  Place token, logprob, valid;
  int most_candidates;
};

// One row's options. What cannot be makes the row invalid.
struct Draw {
  double temperature, top_p, min_p;
  std::int64_t top_k;
  bool bad, greedy;

  template <class Place>
  __device__ Draw(const CommonOf<Place>& common, const SampleOptionsOfRows<Place>& options,
                  std::int64_t row)
      : temperature(value_for(common.space, common.temperature, row)),
        top_p(value_for(common.space, options.top_p, row)),
        min_p(value_for(common.space, options.min_p, row)),
        top_k(value_for(common.space, options.top_k, row)) {
    bad = !(temperature >= 0 && isfinite(temperature)) || !(top_p > 0 && top_p <= 1) ||
          !(min_p >= 0 && min_p <= 1) || top_k < 0;
    greedy = temperature == 0;
    if (bad || greedy) temperature = 1;
    top_k = min(static_cast<long long>(top_k), static_cast<long long>(common.space.cols));
  }

  __device__ bool races() const { return !greedy && top_k == 0 && top_p >= 1 && min_p <= 0; }

  // Candidates to look for.
  __device__ int candidates(int most) const {
    return static_cast<int>(candidates_of_sample(top_k, greedy || races() || bad, most));
  }
};

template <class Place>
__device__ inline Noise noise_of(const CommonOf<Place>& common,
                                 const SampleOptionsOfRows<Place>& options, std::int64_t row) {
  const bool own = static_cast<bool>(options.seed.rows);
  return {row_seed(value_for(common.space, options.seed, row), own, row),
          static_cast<std::uint64_t>(value_for(common.space, options.offset, row))};
}

// Candidates' noise, by the warp that lets them race.
struct OwnNoise {
  static constexpr bool kEarly = true;  // a lane's first two, beside their weights
  Noise noise;

  __device__ void work_out(const Selected&) const {}
  __device__ void wait() const {}
  __device__ Gumbel of(int, unsigned token) const { return Gumbel(noise.of(token)); }
};

// The same by the block's other warps, while the first one filters. It waits for them, and they for
// no other warp: a barrier with a number.
struct OthersNoise {
  static constexpr bool kEarly = false;
  Noise noise;
  Gumbel* of_candidates;  // in shared memory

  __device__ void work_out(const Selected& selected) const {
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x) - kWarp; i < selected.count;
         i += static_cast<int>(blockDim.x) - kWarp) {
      of_candidates[i] = Gumbel(noise.of(index_of(selected.keys[i])));
    }
    __syncwarp();
    asm volatile("bar.arrive 1, %0;" ::"r"(blockDim.x) : "memory");
  }
  __device__ void wait() const { asm volatile("bar.sync 1, %0;" ::"r"(blockDim.x) : "memory"); }
  __device__ Gumbel of(int place, unsigned) const { return of_candidates[place]; }
};

// Which of the sorted keys wins among those that the filters leave; 0 where these are more than
// there are, which cannot be if `all` that top_k leaves are there. By one warp: the candidates are
// few, and no warp has to wait for another.
template <class NoiseOf>
__device__ inline Key key_of_winner(const Draw& draw, const NoiseOf& noise, float factor,
                                    const Selected& selected, bool all) {
  const Key* keys = selected.keys;
  assume_shared(keys);
  const int count = selected.count;
  const auto lane = static_cast<int>(threadIdx.x);
  if (draw.top_k > 0 && draw.top_p < 1 && !all) return 0;  // a part of an unknown whole
  // Some neighbours each, two at a time, so that what one waits for the other does, too. Most lanes
  // have no more than the first two.
  const int each = (count + 2 * kWarp - 1) / (2 * kWarp) * 2;
  const int begin = min(lane * each, count);
  const int end = min(begin + each, count);
  const auto at = [&](int i) { return min(i, count - 1); };
  const float top = value_of(keys[0]) * factor;  // a stream's m is not quite the largest
  const auto z = [&](Key of) { return value_of(of) * factor - top; };
  const auto weight = [&](int i) {  // a part of the likeliest token's
    const float w = exponential(z(keys[at(i)]));
    return i < end ? static_cast<double>(w) : 0;
  };
  const auto runner = [&](int i) {
    const Key key = keys[at(i)];
    return Runner(z(key), noise.of(at(i), index_of(key)), index_of(key));
  };
  const double first_weights[2] = {weight(begin), weight(begin + 1)};
  Runner first[2];
  const auto set_first = [&] {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      first[j] = runner(begin + j);
      first[j].settle();
    }
  };
  if (NoiseOf::kEarly) set_first();
  double mine = first_weights[0] + first_weights[1];
#pragma unroll 1
  for (int i = begin + 2; i < end; i += 2) mine += weight(i) + weight(i + 1);
  const double until = sum_until(mine);
  const double of_all = __shfl_sync(0xFFFFFFFFU, until, kWarp - 1);
  const double total = draw.top_k > 0 ? of_all : static_cast<double>(selected.total.state.d);
  double sum = until - mine;
  int left = count + 1;
  const auto filter = [&](const double(&two)[2], int i) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      sum += two[j];
      const bool below = i + j > 0 && two[j] < draw.min_p;
      const bool enough = draw.top_p < 1 && sum >= draw.top_p * total;
      if (left > count && i + j < end && (below || enough)) left = below ? i + j : i + j + 1;
    }
  };
  filter(first_weights, begin);
#pragma unroll 1
  for (int i = begin + 2; i < end && left > count; i += 2) {
    const double two[2] = {weight(i), weight(i + 1)};
    filter(two, i);
  }
  left = __reduce_min_sync(0xFFFFFFFFU, left);
  if (left > count) {
    if (!all) return 0;
    left = count;
  }
  noise.wait();
  if (!NoiseOf::kEarly) set_first();
  Contest contest;
  int place = 0;
  const int last = min(end, left);
  const auto enter = [&](const Runner(&two)[2], int i) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if (i + j < last && contest.enter(two[j])) place = i + j;
    }
  };
  enter(first, begin);
#pragma unroll 1
  for (int i = begin + 2; i < last; i += 2) {
    const Runner two[2] = {runner(i), runner(i + 1)};
    enter(two, i);
  }
  const Key best = keys[place];
  return __shfl_sync(0xFFFFFFFFU, best, lane_of_winner(contest));
}

template <class Place>
__device__ inline void write_valid(const CommonOf<Place>& common,
                                   const SampleOptionsOfRows<Place>& options, std::int64_t at,
                                   bool valid) {
  RowOut(common.space, options.valid, at).put(0, valid ? 1 : 0);
}

// By one thread: the token, and its logprob, for which its x is needed.
template <class Row, class Place>
__device__ inline void write_token(const CommonOf<Place>& common,
                                   const SampleOptionsOfRows<Place>& options, std::int64_t at,
                                   const Row& row, const State<float>& state, bool valid,
                                   Key winner, bool has_x) {
  const auto& space = common.space;
  const long long token = valid ? static_cast<long long>(index_of(winner)) : -1;
  RowOut(space, options.token, at).put(0, token);
  if (!options.logprob) return;
  const float x = has_x || !valid ? value_of(winner) : row.at(token);
  RowOut(space, options.logprob, at)
      .put(0, valid ? log_probability(state, row.z(x)) : std::numeric_limits<float>::quiet_NaN());
}

// By a block whose candidates are all that the filters can leave.
template <class Row, class Place, class NoiseOf>
__device__ inline void write_draw(const CommonOf<Place>& common,
                                  const SampleOptionsOfRows<Place>& options, std::int64_t at,
                                  const Row& row, const Draw& draw, const NoiseOf& noise,
                                  const Selected& selected) {
  const State<float> state = selected.total.state;
  const bool valid = !draw.bad && state.d > 0 && state.m < -minus_infinity<float>();
  const bool race = valid && !draw.greedy;
  if (threadIdx.x >= kWarp) {
    if (race) noise.work_out(selected);
  } else {
    Key winner = 0;
    if (race) {
      winner = key_of_winner(draw, noise, row.factor(), selected, true);
    } else if (valid) {
      winner = selected.keys[0];
    }
    if (threadIdx.x == 0) write_token(common, options, at, row, state, valid, winner, true);
  }
  if (threadIdx.x == blockDim.x - 1) write_valid(common, options, at, valid);
}

template <class Place>
SampleOptionsOfRows<Place> sample_options(const Select& select, const RowArgs& args,
                                          int most_candidates) {
  return {.top_p = each_row_at<Place>(select.top_p),
          .min_p = each_row_at<Place>(select.min_p),
          .top_k = each_row_at<Place>(select.top_k),
          .seed = each_row_at<Place>(select.seed),
          .offset = each_row_at<Place>(select.offset),
          .token = place_of<Place>(args.out),
          .logprob = place_of<Place>(select.logprob),
          .valid = place_of<Place>(select.valid),
          .most_candidates = most_candidates};
}

}  // namespace onepass::ops::select

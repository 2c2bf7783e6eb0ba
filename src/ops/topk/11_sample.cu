// topk/11_sample: a token of each row, in one read of its logits.
//
// Idea    without a filter, all tokens race in the read itself. With one, the candidates come as topk's do, the
//         filters leave the first of them, and these race. A row finds all of its options on the device.
// Versus  10_choose: what becomes of the keys.
// Bytes   x once. Where the filters leave more than the candidates, one block of the row reads it once more for a race
//         of those that are left, and twice before that to find out who these are by top_p, or by a top_k of thousands; five
//         times for both. Without a filter, once more where the largest logit is far from the first ones.
// Limits  f32, f16, bf16; every option.
// Proof   `onepass verify`, tests/gpu/choose_gpu_test.cpp; numbers: results/h200/topk.json.

#include "ops/topk/answer.cuh"
#include "ops/topk/gumbel.hpp"
#include "ops/topk/launch.cuh"
#include "ops/topk/race.cuh"
#include "ops/topk/search.cuh"
#include "ops/topk/variants.hpp"

namespace onepass::ops::topk {
namespace {

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
    if (greedy || races() || bad) return 1;
    return static_cast<int>(min(static_cast<long long>(top_k > 0 ? top_k : kUnlessAsked),
                                static_cast<long long>(most)));
  }
};

template <class Place>
__device__ inline Noise noise_of(const CommonOf<Place>& common,
                                 const SampleOptionsOfRows<Place>& options, std::int64_t row) {
  const bool own = static_cast<bool>(options.seed.rows);
  return {row_seed(value_for(common.space, options.seed, row), own, row),
          static_cast<std::uint64_t>(value_for(common.space, options.offset, row))};
}

struct SampleShared {
  Team::Shared team;
  SearchShared search;
  int place;  // of the winner among the candidates
};

// Which of the sorted keys wins among those that the filters leave; −1 where these are more than there are. By one warp:
// the candidates are few, and nobody has to wait for another.
// Called with copies, which are in registers.
__device__ __noinline__ int place_of_winner(Draw draw, Noise noise, float factor, Chosen chosen,
                                            bool whole) {
  const Key* keys = chosen.keys;
  assume_shared(keys);
  const int count = chosen.count;
  const State<float> state = chosen.total.state;
  const auto lane = static_cast<int>(threadIdx.x);
  const bool by_k = draw.top_k > 0 && count >= draw.top_k;
  if (draw.top_k > 0 && draw.top_p < 1 && !by_k && !whole)
    return -1;  // a part of what nobody knows
  // Some neighbours each, two at a time, so that what one waits for the other does, too.
  const int each = (count + 2 * kWarp - 1) / (2 * kWarp) * 2;
  const int begin = min(lane * each, count);
  const int end = min(begin + each, count);
  const auto key = [&](int i) { return keys[min(i, count - 1)]; };
  const auto z = [&](Key of) { return value_of(of) * factor - state.m; };
  const auto weight = [&](int i) {  // a part of the likeliest token's
    const float w = exponential(z(key(i)));
    return i < end ? static_cast<double>(w) : 0;
  };
  double mine = 0;
#pragma unroll 1
  for (int i = begin; i < end; i += 2) mine += weight(i) + weight(i + 1);
  const double until = sum_until(mine);
  const double all = __shfl_sync(0xFFFFFFFFU, until, kWarp - 1);
  const double total = draw.top_k > 0 ? all : static_cast<double>(state.d);
  double sum = until - mine;
  int left = count + 1;
#pragma unroll 1
  for (int i = begin; i < end && left > count; i += 2) {
    const double two[2] = {weight(i), weight(i + 1)};
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      sum += two[j];
      const bool below = i + j > 0 && two[j] < draw.min_p;
      const bool enough = draw.top_p < 1 && sum >= draw.top_p * total;
      if (left > count && i + j < end && (below || enough)) left = below ? i + j : i + j + 1;
    }
  }
  left = __reduce_min_sync(0xFFFFFFFFU, left);
  if (left > count) {
    if (!by_k && !whole) return -1;
    left = count;
  }
  Contest contest;
  int place = 0;
  const int last = min(end, left);
#pragma unroll 1
  for (int i = begin; i < last; i += 2) {
    const auto runner = [&](Key of) { return Runner(z(of), noise.of(index_of(of)), index_of(of)); };
    const Runner two[2] = {runner(key(i)), runner(key(i + 1))};
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if (i + j < last && contest.enter(two[j])) place = i + j;
    }
  }
  return __shfl_sync(0xFFFFFFFFU, place, lane_of_winner(contest));
}

// Among so many that no list has them: those from the limits of the filters on. All memory of the launch is free.
template <class Row>
__device__ __noinline__ Key race_of_left(Draw draw, Noise noise, Row row, int cols,
                                         State<float> state, SampleShared& shared) {
  extern __shared__ __align__(16) std::byte memory[];
  const SearchMemory free{reinterpret_cast<unsigned*>(memory),
                          reinterpret_cast<Key*>(memory + SearchMemory::kBins * sizeof(unsigned)),
                          BestKeys::room()};
  const Search<Row> search(shared.search, free, row, cols, state.m, false);
  const float least =
      draw.min_p > 0 ? state.m + static_cast<float>(log(draw.min_p)) : minus_infinity<float>();
  Key limit = 0;
  if (draw.top_k > 0) {
    limit =
        search.from(static_cast<double>(draw.top_k), 1.0F, [](float, unsigned) { return 1.0F; });
  }
  if (draw.top_p < 1) {
    const Key of_k = limit;
    const auto weigh = [&](float x, unsigned index) {
      return of_k == 0 || key_of(x, index) >= of_k ? exponential(row.z(x) - state.m) : 0.0F;
    };
    const double all = of_k > 0 ? search.sum(weigh) : static_cast<double>(state.d);
    limit = max(limit, search.from(draw.top_p * all, 0x1p31F / state.d, weigh));
  }
  // From the limit on: larger, or as large and not behind it. One below all keys has no value.
  const bool limits = limit >= lowest_limit();
  const float lowest = limits ? value_of(limit) : minus_infinity<float>();
  const unsigned last = limits ? index_of(limit) : ~0U;
  const auto keep_left = [&]<int N>(float(&z)[N][4], int first, int step) {
#pragma unroll
    for (int j = 0; j < 4 * N; ++j) {
      const float x = z[j / 4][j % 4];
      const auto token = static_cast<unsigned>(4 * (first + j / 4 * step) + j % 4);
      const bool left = x > lowest || (x == lowest && token <= last);
      z[j / 4][j % 4] = left && row.z(x) >= least ? row.z(x) : minus_infinity<float>();
    }
  };
  const Contest contest = race(row, cols, 0, (cols + 3) / 4, noise, state.m, keep_left);
  return winner_of_block(contest, shared.team.best.keys);
}

template <class Row>
__global__ __launch_bounds__(gpu_choose::kMostThreads, Row::kBlocksAtOnce) void sample_rows(
    const __grid_constant__ typename Row::Args args,
    const __grid_constant__ CommonOf<typename Row::Place> common,
    const __grid_constant__ SampleOptionsOfRows<typename Row::Place> options,
    const __grid_constant__ Meeting meeting) {
  extern __shared__ __align__(16) std::byte memory[];
  __shared__ SampleShared shared;
  await_previous();
  const Team team(shared.team, {memory, common.stages, Row::kPacks}, meeting);
  const std::int64_t at = common.first_row + team.row();
  const Draw draw(common, options, at);
  const auto cols = static_cast<int>(common.space.cols);
  const Row row(args, at, common.factor_for(draw.temperature), draw.temperature);
  BestKeys best = team.best_of(draw.candidates(options.most_candidates));
  const Part<Row> part(row, common.size, team.rank());
  const bool races = draw.races();
  Chosen chosen;
  if (races) {
    const Raced raced =
        race_all(row, cols, team.rank(), team.size(), noise_of(common, options, at), best);
    chosen = team.choose_offered(best, {raced.state, 0}, raced.best);
  } else {
    chosen = team.choose(part, best, Target{}, false);
  }
  if (!chosen.mine) return;
  assume_shared(chosen.keys);
  const State<float> state = chosen.total.state;
  const bool valid = !draw.bad && state.d > 0 && state.m < -minus_infinity<float>();
  // The token, and its x where that is at hand.
  Key winner = 0;
  bool has_x = false;
  if (valid && races && fabsf(state.m - start_of(row, cols)) > kFarFromStart) {
    winner = race_of_left(draw, noise_of(common, options, at), row, cols, state, shared);
  } else if (valid && (races || draw.greedy)) {
    winner = chosen.keys[0];
    has_x = draw.greedy;
  } else if (valid) {
    const Noise noise = noise_of(common, options, at);
    if (threadIdx.x < kWarp) {
      const bool whole = chosen.count < best.k() || best.k() >= cols;
      const int place = place_of_winner(draw, noise, row.factor(), chosen, whole);
      if (threadIdx.x == 0) shared.place = place;
    }
    __syncthreads();
    has_x = shared.place >= 0;
    winner = chosen.keys[max(shared.place, 0)];
    __syncthreads();  // the candidates' memory is free
    if (!has_x) {
      const Key left = race_of_left(draw, noise, row, cols, state, shared);
      if (left != 0) winner = left;  // or else the likeliest: nobody else is left, by rounding
    }
  }
  if (threadIdx.x != 0) return;
  const auto& space = common.space;
  const long long token = valid ? static_cast<long long>(index_of(winner)) : -1;
  RowOut(space, options.token, at).put(0, token);
  RowOut(space, options.valid, at).put(0, valid ? 1 : 0);
  if (!options.logprob) return;
  const float x = has_x || !valid ? value_of(winner) : row.at(token);
  RowOut(space, options.logprob, at)
      .put(0, valid ? log_probability(state, row.z(x)) : std::numeric_limits<float>::quiet_NaN());
}

}  // namespace

Status gpu_sample(const RowArgs& args, const Plan& plan) {
  const Select& select = *args.select;
  return with_choose_row(args, plan, [&]<class Row>(Type<Row>) {
    using Place = typename Row::Place;
    const SampleOptionsOfRows<Place> options{.top_p = each_row_at<Place>(select.top_p),
                                             .min_p = each_row_at<Place>(select.min_p),
                                             .top_k = each_row_at<Place>(select.top_k),
                                             .seed = each_row_at<Place>(select.seed),
                                             .offset = each_row_at<Place>(select.offset),
                                             .token = place_of<Place>(args.out),
                                             .logprob = place_of<Place>(select.logprob),
                                             .valid = place_of<Place>(select.valid),
                                             .most_candidates = gpu_choose::most_candidates(plan)};
    return launch_choose(sample_rows<Row>, args, plan,
                         common_of<Place>(args, plan, select.temperature), options);
  });
}

}  // namespace onepass::ops::topk

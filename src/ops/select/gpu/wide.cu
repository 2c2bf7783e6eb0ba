// topk/gpu_wide: the K largest of float64 rows, and the experts of float64 scores.
//
// Idea    a block per row: eight bits of the K-th largest at a time, from the highest down, until
//         the elements from there on are K. These go to the workspace and are put in order.
// Versus  gpu_sort: values of 64 bits have no room beside their index in one word. One kernel for
//         all, and no candidates.
// Bytes   x four to ten times, from L2 where it stays there; K pairs log² K times.
// Limits  f64; every option of the row ops.
// Proof   `onepass verify`; workloads/test_topk_f64.txt.

#include "core/cuda/dependent.cuh"
#include "merge/block.cuh"
#include "merge/warp_rows.cuh"
#include "ops/select/args.hpp"
#include "ops/select/gpu/plan.hpp"
#include "ops/select/gpu/variants.hpp"
#include "rows/gpu/launch.cuh"
#include "rows/gpu/logits.cuh"

namespace onepass::ops::select {
namespace {

using Word = unsigned long long;

// Larger values are larger words, −0 and +0 alike. A NaN does not come here.
__device__ inline Word word_of(double z) {
  const auto bits = static_cast<Word>(__double_as_longlong(z + 0.0));
  return bits ^ (static_cast<Word>(static_cast<long long>(bits) >> 63) | Word{1} << 63);
}

// An element that was selected. Loads and stores are of 16 bytes, none of them left unwritten.
struct alignas(gpu_select::kEntryBytes) Entry {
  Word word;
  unsigned index;
  unsigned zero = 0;
};

struct WideArgs {
  RowArgs row;
  std::int64_t k;
  Operand indices, target_logprob, target_rank, bias, temperature_rows;
  TopkValues values;
  bool sorted, gate, soft, renormalize;
  double scale;
};

// By a whole block.
class WideRow {
 public:
  struct Shared {
    BlockFold<Merge<double>>::Scratch states;
    BlockFold<Add<double>>::Scratch sums;
    unsigned bins[gpu_select::kWideDigits];
    unsigned of_warp[32];
    unsigned digit, above, inside;
    unsigned count;
  };

  __device__ WideRow(const WideArgs& args, Shared& shared, std::int64_t row)
      : args_(args),
        shared_(shared),
        row_(row),
        cols_(args.row.space.cols),
        k_(static_cast<unsigned>(args.k)),
        logits_(args.row, row) {}

  __device__ void select(Entry* entries, int size) {
    fold();
    if (!broken_) {
      take(entries, limit());
      order(entries, size);
    }
    write(entries);
  }

 private:
  static constexpr int kBits = 8;
  static_assert(gpu_select::kWideDigits == 1 << kBits);

  // What has a place: words from `word` on, but of those that are it, where they are too many,
  // the first `equal`.
  struct Limit {
    Word word;
    unsigned equal;
    bool all;
  };

  __device__ static unsigned thread() { return threadIdx.x; }

  template <class Body>
  __device__ void each(Body body) const {
    for (std::int64_t c = thread(); c < cols_; c += blockDim.x) body(logits_.at(c), c);
  }

  __device__ double sum(double mine) const {
    return BlockFold<Add<double>>(shared_.sums).all(mine);
  }

  // The state, where the target is, and whether there is an answer.
  __device__ void fold() {
    const RowArgs& args = args_.row;
    std::int64_t target = -1;
    if (args.target) {
      target = read_one<std::int64_t>(row_data(args.space, args.target, row_), args.target.dtype);
    }
    const bool is_token = target >= 0 && target < cols_;
    const double own = is_token ? logits_.at(target) : 0;
    double before = 0;
    State<double> mine = identity<double>();
    each([&](double z, std::int64_t c) {
      mine = merge(mine, leaf(z));
      before += is_token && (z > own || (z == own && c < target)) ? 1 : 0;
    });
    state_ = BlockFold<Merge<double>>(shared_.states).all(mine);
    before = sum(before);
    broken_ = state_.d != state_.d && state_.m != -minus_infinity<double>();
    if (args_.gate) {
      double bad = 0;
      each([&](double z, std::int64_t c) {
        const double by = chosen_by(z, c);
        bad += by != by ? 1 : 0;
      });
      broken_ = sum(bad) > 0 || (args_.soft && state_.d != state_.d);
    } else if (args_.temperature_rows) {
      const double t = read_one<double>(row_data(args.space, args_.temperature_rows, row_),
                                        args_.temperature_rows.dtype);
      broken_ = broken_ || !(t > 0 && isfinite(t));
    }
    if (broken_) state_ = {quiet_nan(), quiet_nan()};
    if (thread() != 0) return;
    if (args.lse) put(args.lse, 0, logsumexp(state_));
    if (!args.target) return;
    const bool none = broken_ || !is_token;
    put(args_.target_logprob, 0, none ? quiet_nan() : log_probability(own));
    put(args_.target_rank, 0, none ? -1LL : static_cast<long long>(before));
  }

  // By what an element is selected.
  __device__ double chosen_by(double z, std::int64_t c) const {
    if (!args_.bias) return z;
    const std::int64_t past = c * args_.bias.col_stride;
    return score(z) + element_at<double>(args_.bias.data, args_.bias.dtype, past);
  }

  __device__ double score(double z) const {
    if (args_.soft) return weight(state_, z);
    const double t = exp(-fabs(z));
    return (z >= 0 ? 1.0 : t) / (1.0 + t);
  }

  // Digit by digit: how many elements have each of them, behind the digits that are known.
  __device__ Limit limit() const {
    Word known = 0;
    Word prefix = 0;
    unsigned wanted = k_;
    for (int shift = 64 - kBits; shift >= 0; shift -= kBits) {
      for (unsigned b = thread(); b < gpu_select::kWideDigits; b += blockDim.x) shared_.bins[b] = 0;
      __syncthreads();
      each([&](double z, std::int64_t c) {
        const Word word = word_of(chosen_by(z, c));
        if ((word & known) != prefix) return;
        atomicAdd(&shared_.bins[word >> shift & (gpu_select::kWideDigits - 1)], 1U);
      });
      __syncthreads();
      find_digit(wanted);
      prefix |= static_cast<Word>(shared_.digit) << shift;
      known |= static_cast<Word>(gpu_select::kWideDigits - 1) << shift;
      wanted -= shared_.above;
      const unsigned inside = shared_.inside;
      __syncthreads();
      if (inside == wanted) return {prefix, wanted, true};
    }
    return {prefix, wanted, false};
  }

  // The largest digit with which there are enough: one thread per digit, from the largest down.
  __device__ void find_digit(unsigned wanted) const {
    const unsigned lane = thread() % 32;
    const bool has = thread() < gpu_select::kWideDigits;
    const unsigned own = has ? shared_.bins[gpu_select::kWideDigits - 1 - thread()] : 0;
    const unsigned until = sum_until(own);
    if (lane == 31) shared_.of_warp[thread() / 32] = until;
    __syncthreads();
    unsigned before = until - own;
    for (unsigned w = 0; w < thread() / 32; ++w) before += shared_.of_warp[w];
    if (has && before < wanted && wanted <= before + own) {
      shared_.digit = gpu_select::kWideDigits - 1 - thread();
      shared_.above = before;
      shared_.inside = own;
    }
    __syncthreads();
  }

  __device__ void take(Entry* entries, const Limit& from) const {
    if (thread() == 0) shared_.count = 0;
    __syncthreads();
    each([&](double z, std::int64_t c) {
      const Word word = word_of(chosen_by(z, c));
      if (word < from.word || (word == from.word && !from.all)) return;
      entries[atomicAdd(&shared_.count, 1U)] = {word, static_cast<unsigned>(c)};
    });
    if (from.all) return;
    // Of equal ones the first: a stretch of the row after the other.
    unsigned taken = 0;
    for (std::int64_t first = 0; taken < from.equal; first += blockDim.x) {
      const std::int64_t c = first + thread();
      const bool is_equal = c < cols_ && word_of(chosen_by(logits_.at(c), c)) == from.word;
      const unsigned until = sum_until(is_equal ? 1U : 0U);
      if (thread() % 32 == 31) shared_.of_warp[thread() / 32] = until;
      __syncthreads();
      unsigned place = taken + until - (is_equal ? 1U : 0U);
      for (unsigned w = 0; w < blockDim.x / 32; ++w) {
        if (w < thread() / 32) place += shared_.of_warp[w];
        taken += shared_.of_warp[w];
      }
      if (is_equal && place < from.equal) {
        entries[k_ - from.equal + place] = {from.word, static_cast<unsigned>(c)};
      }
      __syncthreads();
    }
  }

  // Largest first, of equal ones the lower index; or by index alone.
  __device__ bool precedes(const Entry& a, const Entry& b) const {
    if (args_.sorted && a.word != b.word) return a.word > b.word;
    return a.index < b.index;
  }

  // A bitonic network over `size` of them, a power of two; those past K are behind all others.
  __device__ void order(Entry* entries, int size) const {
    const auto n = static_cast<unsigned>(size);
    for (unsigned i = k_ + thread(); i < n; i += blockDim.x) entries[i] = {0, ~0U};
    __syncthreads();
    for (unsigned width = 2; width <= n; width *= 2) {
      for (unsigned apart = width / 2; apart > 0; apart /= 2) {
        for (unsigned i = thread(); i < n / 2; i += blockDim.x) {
          const unsigned low = i / apart * 2 * apart + i % apart;
          const Entry a = entries[low];
          const Entry b = entries[low + apart];
          if (precedes(b, a) == ((low & width) == 0)) {
            entries[low] = b;
            entries[low + apart] = a;
          }
        }
        __syncthreads();
      }
    }
  }

  __device__ void write(const Entry* entries) const {
    double total = 0;
    const bool renormalizes =
        args_.gate ? args_.renormalize : args_.values == TopkValues::renormalized;
    if (renormalizes && !broken_) {
      for (unsigned i = thread(); i < k_; i += blockDim.x) total += share(at(entries[i]));
      total = sum(total);
    }
    for (unsigned i = thread(); i < k_; i += blockDim.x) {
      put(args_.indices, i, broken_ ? -1LL : static_cast<long long>(entries[i].index));
      put(args_.row.out, i, broken_ ? quiet_nan() : value(at(entries[i]), total));
    }
    __syncthreads();  // the next row's entries come to the same place
  }

  __device__ double at(const Entry& entry) const { return logits_.at(entry.index); }
  __device__ double share(double z) const { return args_.gate ? score(z) : weight(state_, z); }

  __device__ double value(double z, double total) const {
    if (args_.gate) {
      return share(z) * (args_.renormalize && total != 0 ? args_.scale / total : args_.scale);
    }
    switch (args_.values) {
      case TopkValues::logit: return z;
      case TopkValues::log_probability: return log_probability(z);
      case TopkValues::renormalized: return total == 0 ? 0 : share(z) / total;
      default: return share(z);
    }
  }

  __device__ double log_probability(double z) const {
    if (state_.d == 0 || z == minus_infinity<double>()) {
      return state_.d == state_.d ? minus_infinity<double>() : state_.d;
    }
    return (z - state_.m) - log(state_.d);
  }

  __device__ static double quiet_nan() { return std::numeric_limits<double>::quiet_NaN(); }

  template <class Value>
  __device__ void put(const Operand& to, std::int64_t column, Value value) const {
    if (!to) return;
    write_like(row_data(args_.row.space, to, row_), to.dtype, column * to.col_stride, value);
  }

  const WideArgs& args_;
  Shared& shared_;
  std::int64_t row_, cols_;
  unsigned k_;
  AnyLogits<double> logits_;
  State<double> state_{};
  bool broken_ = false;
};

__global__ void __launch_bounds__(gpu_select::kMostThreads)
    wide_rows(const __grid_constant__ WideArgs args, Entry* entries, int size) {
  __shared__ WideRow::Shared shared;
  await_previous();
  for (std::int64_t row = args.row.first_row + blockIdx.x; row < args.row.end_row;
       row += gridDim.x) {
    WideRow(args, shared, row).select(entries + std::int64_t{blockIdx.x} * size, size);
  }
}

}  // namespace

Status gpu_wide(const RowArgs& args, const gpu_select::SortLaunch& sort) {
  const Select& select = *args.select;
  const bool gate = args.op == Op::gate;
  const WideArgs wide{.row = args,
                      .k = select.k,
                      .indices = select.indices,
                      .target_logprob = select.target_logprob,
                      .target_rank = select.target_rank,
                      .bias = select.bias,
                      .temperature_rows = args.logits.temperature_rows,
                      .values = select.values,
                      .sorted = gate || select.sorted,
                      .gate = gate,
                      .soft = select.score == GateScore::softmax,
                      .renormalize = select.renormalize,
                      .scale = select.scale};
  return launch(config_of(args, sort), "gpu_wide", wide_rows, wide,
                reinterpret_cast<Entry*>(args.workspace), sort.keys);
}

}  // namespace onepass::ops::select

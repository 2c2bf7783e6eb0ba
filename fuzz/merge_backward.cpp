// merge_attention_backward, which is no op with variants and has no problem line.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "cli/ops/bounds.hpp"
#include "cli/ops/expect.hpp"
#include "fuzz/arguments.hpp"
#include "fuzz/targets.hpp"
#include "onepass/attention.hpp"
#include "oracle/oracle.hpp"
#include "runtime/gpu.hpp"

namespace onepass::fuzz {
namespace {

using Extents = std::vector<std::int64_t>;

enum Id : std::uint8_t { a, lse_a, b, lse_b, d_o, d_lse, d_a, d_lse_a, d_b, d_lse_b };

constexpr std::array<std::string_view, 10> kNames = {
    "a", "lse_a", "b", "lse_b", "d_o", "d_lse", "d_a", "d_lse_a", "d_b", "d_lse_b"};

constexpr bool has_rows_only(std::size_t id) {
  return id == lse_a || id == lse_b || id == d_lse || id == d_lse_a || id == d_lse_b;
}
constexpr bool is_written(std::size_t id) { return id >= d_a; }

class MergeBackward {
 public:
  explicit MergeBackward(Bytes& bytes) : bytes_(bytes) {
    shape_.resize(static_cast<std::size_t>(bytes.from(1, 4)));
    std::int64_t left = 1 << 11;
    for (std::int64_t& extent : shape_) {
      extent = std::min(bytes.one_in(8) ? bytes.below(80) : bytes.from(1, 6), left);
      left /= std::max<std::int64_t>(extent, 1);
    }
    const bool with_d_lse = bytes.one_in(2);
    for (std::size_t id = 0; id < kNames.size(); ++id) {
      if (id != d_lse || with_d_lse) make(id);
    }
    fill();
  }

  void run() {
    expect();
    mirror();
    const std::string wrong = bytes_.one_in(4) ? spoil() : "";
    meaning([this, &wrong] { return text(wrong); });
    const Context context = device == Device::cuda ? Context::cuda() : Context::cpu(1);
    const auto& t = shown_;
    const Status status =
        merge_attention_backward(context, t[a], t[lse_a], t[b], t[lse_b], t[d_o], t[d_lse], t[d_a],
                                 t[d_lse_a], t[d_b], t[d_lse_b]);
    fetch();
    for (std::size_t id = 0; id < kNames.size(); ++id) {
      const cli::GuardedArray& array = arrays_[id];
      if (!array.present()) continue;
      if (!array.intact()) finding("bytes beside the elements were written");
      if (!status.ok() && is_written(id) && !array.poisoned())
        finding("written by a call that was refused");
    }
    if (!wrong.empty()) {
      if (status.ok()) finding("accepted, although " + wrong);
      return;
    }
    if (!status.ok()) finding("refused: " + status.message());
    compare();
  }

 private:
  void make(std::size_t id) {
    const bool rows = has_rows_only(id);
    const Extents shape(shape_.begin(), shape_.end() - (rows ? 1 : 0));
    const DType dtype = rows ? bytes_.pick({DType::f32, DType::f64})
                             : bytes_.pick({DType::f32, DType::f16, DType::bf16, DType::f64});
    const Extents strides =
        decode_strides(bytes_, shape, std::vector<bool>(shape.size(), false), 0);
    const Status status = arrays_[id].make(dtype, shape, strides, bytes_.below(4));
    if (!status.ok()) finding(status.message());
  }

  void fill() {
    cli::Random random(bytes_.bits(2));
    for (std::size_t id = 0; id < kNames.size(); ++id) {
      cli::GuardedArray& array = arrays_[id];
      if (array.present() && is_written(id)) array.poison();
      const bool sums = id == lse_a || id == lse_b;
      for (std::int64_t i = 0; !is_written(id) && i < array.size(); ++i) {
        constexpr double kInf = std::numeric_limits<double>::infinity();
        const double special =
            sums ? bytes_.pick({0.0, -kInf, 1000.0, -1000.0, std::nan("")}) : 0.0;
        array.set(i, sums && bytes_.one_in(4) ? special : (sums ? 4 : 1) * random.normal());
      }
    }
  }

  void give(std::size_t id, double value, double error) {
    const DType to = arrays_[id].tensor().dtype;
    expected_[id].push_back({value, error + cli::finite_size(value) * cli::epsilon(to) * 0.51 +
                                        cli::smallest(to) + cli::smallest(DType::f32)});
  }

  void expect() {
    const std::int64_t cols = shape_.back();
    for (std::int64_t r = 0; r < arrays_[lse_a].size(); ++r) {
      const oracle::Row z = {arrays_[lse_a].get(r), arrays_[lse_b].get(r)};
      const oracle::Row weights = oracle::softmax(z);
      const double lost = 0x1p-23 * (8 + cli::finite_size(z[0]) + cli::finite_size(z[1]));
      double difference = 0, size = 0;
      for (std::int64_t i = r * cols; i < (r + 1) * cols; ++i) {
        const double up = arrays_[d_o].get(i);
        difference += up * (arrays_[a].get(i) - arrays_[b].get(i));
        size += std::abs(up) * (std::abs(arrays_[a].get(i)) + std::abs(arrays_[b].get(i)));
        for (const auto& [id, weight] : {std::pair(d_a, weights[0]), std::pair(d_b, weights[1])}) {
          give(id, weight * up, lost * cli::finite_size(weight * up));
        }
      }
      const double more = arrays_[d_lse].present() ? arrays_[d_lse].get(r) : 0;
      const auto of_lse = [&](double own, double other, double apart) {
        return own == 0 ? 0 : own * (other * apart + more);
      };
      for (const auto& [id, own, other, apart] :
           {std::tuple(d_lse_a, weights[0], weights[1], difference),
            std::tuple(d_lse_b, weights[1], weights[0], -difference)}) {
        const double sizes =
            cli::finite_size(own) * (size * cli::finite_size(other) + std::abs(more));
        give(id, of_lse(own, other, apart), 2 * lost * sizes);
      }
    }
  }

  void mirror() {
    for (std::size_t id = 0; id < kNames.size(); ++id) {
      if (!arrays_[id].present()) continue;
      if (device == Device::cuda && !arrays_[id].mirror().ok()) finding("no memory on the GPU");
      shown_[id] = arrays_[id].tensor_on(device);
    }
  }

  void fetch() {
    if (device == Device::cpu) return;
    bool done = gpu::synchronize().ok();
    for (cli::GuardedArray& array : arrays_) {
      done = done && (!array.present() || array.download().ok());
    }
    if (!done) finding("after the call: the GPU failed");
  }

  // Makes one thing wrong that has to be refused, and says what.
  std::string spoil() {
    const auto id = static_cast<std::size_t>(bytes_.below(kNames.size()));
    Tensor& t = shown_[id];
    if (!t.present()) return {};
    const auto say = [&](std::string_view what) { return fmt::format("{}: {}", kNames[id], what); };
    const auto other = static_cast<std::size_t>(bytes_.below(kNames.size()));
    switch (bytes_.below(6)) {
      case 0:
        t.rank = bytes_.pick({kMaxRank + 1, std::numeric_limits<int>::max()});
        return say("a rank that cannot be");
      case 1:
        if (t.rank == 0) return {};
        t.shape[static_cast<std::size_t>(bytes_.below(t.rank))] = -1;
        return say("a negative extent");
      case 2:
        if (t.rank == 0) return {};
        t.shape[static_cast<std::size_t>(bytes_.below(t.rank))] += 1;
        return say("another extent");
      case 3:
        t.dtype = has_rows_only(id) ? DType::f16 : DType::i32;
        return say("a dtype that it cannot have");
      case 4:
        if (id == d_lse) return {};
        t = {};
        return say("absent");
      default:
        if (!is_written(id) || other == id || arrays_[id].size() == 0 || arrays_[other].size() == 0)
          return {};
        t.data = shown_[other].data;
        return say(fmt::format("overlaps {}", kNames[other]));
    }
  }

  void compare() const {
    for (std::size_t id = d_a; id < kNames.size(); ++id) {
      for (std::size_t i = 0; i < expected_[id].size(); ++i) {
        const cli::Expected& e = expected_[id][i];
        const double got = arrays_[id].get(static_cast<std::int64_t>(i));
        if (cli::distance(got, e) <= 1) continue;
        finding(fmt::format("{}[{}] is {:.9g}, expected {:.9g} within {:.3g}", kNames[id], i, got,
                            e.value, e.tolerance));
      }
    }
  }

  std::string text(const std::string& wrong) const {
    std::string text = fmt::format("merge_attention_backward {}\n", wrong);
    for (std::size_t id = 0; id < kNames.size(); ++id) {
      if (!arrays_[id].present()) continue;
      const Tensor& t = arrays_[id].tensor();
      text += fmt::format("  {} {} of rank {}:", kNames[id], name(t.dtype), t.rank);
      for (std::size_t d = 0; d < static_cast<std::size_t>(t.rank); ++d) {
        text += fmt::format(" {} by {}", t.shape[d], t.strides[d]);
      }
      text += "\n";
    }
    return text;
  }

  Bytes& bytes_;
  Extents shape_;
  std::array<cli::GuardedArray, kNames.size()> arrays_;
  std::array<Tensor, kNames.size()> shown_;
  std::array<std::vector<cli::Expected>, kNames.size()> expected_;
};

}  // namespace

void fuzz_merge_backward(Bytes& bytes) { MergeBackward(bytes).run(); }

}  // namespace onepass::fuzz

// merge_attention, which is no op with variants and has no problem line.

#include <fmt/format.h>

#include <algorithm>
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

class Merge {
 public:
  explicit Merge(Bytes& bytes) : bytes_(bytes) {
    shape_.resize(static_cast<std::size_t>(bytes.from(1, 4)));
    std::int64_t left = 1 << 11;
    for (std::int64_t& extent : shape_) {
      extent = std::min(bytes.one_in(8) ? bytes.below(80) : bytes.from(1, 6), left);
      left /= std::max<std::int64_t>(extent, 1);
    }
    with_lse_ = bytes.one_in(2);
    in_place_ = bytes.one_in(3) ? static_cast<int>(bytes.from(1, 2)) : 0;
    wrong_ = bytes.one_in(6) ? static_cast<int>(bytes.from(1, 5)) : 0;
  }

  void run() {
    const Extents rows(shape_.begin(), shape_.end() - 1);
    const auto floating = [&] {
      return bytes_.pick({DType::f32, DType::f16, DType::bf16, DType::f64});
    };
    const auto wide = [&] { return bytes_.pick({DType::f32, DType::f64}); };
    make(a_, floating(), shape_);
    make(lse_a_, wide(), rows);
    make(b_, floating(), shape_);
    make(lse_b_, wide(), rows);
    if (in_place_ == 0) make(o_, floating(), shape_);
    if (with_lse_) make(lse_, wide(), rows);
    fill();
    meaning([this] { return text(); });
    const Status status = submit();
    if (!gpu_done()) finding("after the call: the GPU failed");
    for (const cli::GuardedArray* each : {&a_, &b_, &o_, &lse_, &lse_a_, &lse_b_}) {
      if (each->present() && !each->intact()) finding("bytes beside the elements were written");
    }
    if (wrong_ != 0) {
      if (status.ok()) finding(fmt::format("accepted, although wrong in way {}", wrong_));
      for (const cli::GuardedArray* each : {&o_, &lse_}) {
        if (each->present() && !each->poisoned()) finding("written by a call that was refused");
      }
      return;
    }
    if (!status.ok()) finding("refused: " + status.message());
    compare();
  }

 private:
  void make(cli::GuardedArray& array, DType dtype, const Extents& shape) {
    const Extents strides =
        decode_strides(bytes_, shape, std::vector<bool>(shape.size(), false), 0);
    const Status status = array.make(dtype, shape, strides, bytes_.below(4));
    if (!status.ok()) finding(status.message());
  }

  void fill() {
    cli::Random random(bytes_.bits(2));
    for (cli::GuardedArray* each : {&a_, &b_}) {
      for (std::int64_t i = 0; i < each->size(); ++i) each->set(i, random.normal());
    }
    for (cli::GuardedArray* each : {&lse_a_, &lse_b_}) {
      for (std::int64_t i = 0; i < each->size(); ++i) {
        const double special = bytes_.pick({0.0, -std::numeric_limits<double>::infinity(), 1000.0,
                                            -1000.0, std::numeric_limits<double>::quiet_NaN()});
        each->set(i, bytes_.one_in(4) ? special : 4 * random.normal());
      }
    }
    if (o_.present()) o_.poison();
    if (lse_.present()) lse_.poison();
    expect();
  }

  void expect() {
    for (std::int64_t r = 0; r < lse_a_.size(); ++r) {
      const oracle::Row z = {lse_a_.get(r), lse_b_.get(r)};
      const oracle::Row weights = oracle::softmax(z);
      const double size = cli::finite_size(z[0]) + cli::finite_size(z[1]);
      lse_expected_.push_back({oracle::logsumexp(z), 0x1p-23 * (4 + 4 * size)});
      for (std::int64_t i = r * shape_.back(); i < (r + 1) * shape_.back(); ++i) {
        const double a = weights[0] * a_.get(i), b = weights[1] * b_.get(i);
        const DType to = target().tensor().dtype;
        const double error = 0x1p-23 * (8 + 2 * size) * (cli::finite_size(a) + cli::finite_size(b));
        expected_.push_back({a + b, error + cli::finite_size(a + b) * cli::epsilon(to) * 0.51 +
                                        cli::smallest(to) + cli::smallest(DType::f32)});
      }
    }
  }

  const cli::GuardedArray& target() const { return in_place_ == 0 ? o_ : in_place_ == 1 ? a_ : b_; }

  Status submit() {
    if (device == Device::cuda) {
      for (cli::GuardedArray* each : all()) {
        if (Status status = each->mirror(); !status.ok()) return status;
      }
    }
    const auto on = [](const cli::GuardedArray& array) { return array.tensor_on(device); };
    Tensor a = on(a_), b = on(b_), o = on(target()), lse_a = on(lse_a_), lse_b = on(lse_b_),
           lse = on(lse_);
    switch (wrong_) {
      case 1: o.rank = kMaxRank + 1; break;
      case 2: b.shape[0] = -1; break;
      case 3: lse_a.dtype = DType::f16; break;
      case 4: lse_b = {}; break;
      case 5: a.rank = -1; break;
      default: break;
    }
    const Context context = device == Device::cuda ? Context::cuda() : Context::cpu(1);
    return merge_attention(context, a, lse_a, b, lse_b, o, lse);
  }

  std::vector<cli::GuardedArray*> all() {
    std::vector<cli::GuardedArray*> present;
    for (cli::GuardedArray* each : {&a_, &b_, &o_, &lse_a_, &lse_b_, &lse_}) {
      if (each->present()) present.push_back(each);
    }
    return present;
  }

  bool gpu_done() {
    if (device == Device::cpu) return true;
    bool done = gpu::synchronize().ok();
    for (cli::GuardedArray* each : all()) done = done && each->download().ok();
    return done;
  }

  void compare() const {
    for (std::size_t i = 0; i < expected_.size(); ++i) check("o", target(), i, expected_[i]);
    for (std::size_t r = 0; with_lse_ && r < lse_expected_.size(); ++r)
      check("lse", lse_, r, lse_expected_[r]);
  }

  static void check(std::string_view what, const cli::GuardedArray& array, std::size_t i,
                    cli::Expected e) {
    const double got = array.get(static_cast<std::int64_t>(i));
    if (cli::distance(got, e) <= 1) return;
    finding(fmt::format("{}[{}] is {:.9g}, expected {:.9g} within {:.3g}", what, i, got, e.value,
                        e.tolerance));
  }

  std::string text() {
    std::string text = fmt::format("merge_attention in place {} wrong {}\n", in_place_, wrong_);
    for (const cli::GuardedArray* each : {&a_, &lse_a_, &b_, &lse_b_, &o_, &lse_}) {
      if (!each->present()) continue;
      const Tensor& t = each->tensor();
      text += fmt::format("  {} of rank {}:", name(t.dtype), t.rank);
      for (int d = 0; d < t.rank; ++d) {
        const auto at = static_cast<std::size_t>(d);
        text += fmt::format(" {} by {}", t.shape[at], t.strides[at]);
      }
      text += "\n";
    }
    return text;
  }

  Bytes& bytes_;
  Extents shape_;
  bool with_lse_ = false;
  int in_place_ = 0;  // o is: 0 its own, 1 a, 2 b
  int wrong_ = 0;     // which thing
  cli::GuardedArray a_, lse_a_, b_, lse_b_, o_, lse_;
  std::vector<cli::Expected> expected_, lse_expected_;
};

}  // namespace

void fuzz_merge(Bytes& bytes) { Merge(bytes).run(); }

}  // namespace onepass::fuzz

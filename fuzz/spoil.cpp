// What no op may accept: one thing of a call that was in order is made wrong.

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "fuzz/arguments.hpp"
#include "fuzz/target.hpp"

namespace onepass::fuzz {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();

class Spoiling {
 public:
  Spoiling(Bytes& bytes, const cli::Call& call, Arguments& arguments)
      : bytes_(bytes), call_(call), c_(call.spec()), a_(arguments), o_(arguments.options) {}

  std::string run() {
    switch (bytes_.below(4)) {
      case 0: return number();
      case 1: return value();
      default: return tensor();
    }
  }

 private:
  bool attends() const { return onepass::attends(c_.op); }
  bool attends_backward() const { return c_.op == Op::attention_backward; }
  bool reads_logits() const { return c_.op != Op::gate && !attends(); }

  template <class T>
  std::string set(std::string_view what, T& option, std::initializer_list<T> bad) {
    option = bytes_.pick(bad);
    return fmt::format("{} is {}", what, option);
  }

  // The same, where no tensor stands for it.
  std::string set_alone(std::string_view what, double& option, std::initializer_list<double> bad) {
    return a_.find(what) != nullptr ? std::string() : set(what, option, bad);
  }

  std::string number() {
    const bool loss = c_.op == Op::cross_entropy || c_.op == Op::cross_entropy_backward;
    const bool backward = c_.op == Op::softmax_backward || c_.op == Op::log_softmax_backward;
    switch (bytes_.below(10)) {
      case 0:
        return set("variant", o_.variant,
                   {std::string("none"), std::string(300, 'x'), std::string("gpu_block:0")});
      case 1:
        if (selects(c_.op) || attends()) return {};
        return set("axis", o_.axis,
                   {kMaxRank, -kMaxRank - 1, std::numeric_limits<int>::max(),
                    std::numeric_limits<int>::min()});
      case 2:
        if (c_.op == Op::gate) return {};
        return set("softcap", o_.softcap, {-1.0, kNan, kInf, -kInf});
      case 3:
        if (c_.op == Op::gate) return {};
        return set("window_left", o_.window_left, {std::int64_t{-2}, kLeast});
      case 4:
        if (c_.op == Op::gate) return {};
        return set("window_right", o_.window_right, {std::int64_t{-2}, kLeast});
      case 5:
        if (attends()) {
          o_.attention_scale = bytes_.pick({kNan, kInf, -kInf});
          return fmt::format("scale is {}", *o_.attention_scale);
        }
        return set_alone("scale", o_.scale, {kNan, kInf, -kInf});
      case 6:
        if (!reads_logits()) return {};
        return set_alone("temperature", o_.temperature, {kNan, kInf, -1.0, -kInf});
      case 7:
        if (loss) return set("label_smoothing", o_.smoothing, {-0.1, 1.5, kNan});
        if (attends_backward()) return gradient();
        if (attends()) return set("split", o_.split, {std::int64_t{-1}, kLeast});
        if (c_.op == Op::sample) return set_alone("top_p", o_.top_p, {0.0, -1.0, 1.5, kNan});
        return {};
      case 8:
        if (loss) return set("z_loss", o_.z_loss, {kNan, kInf});
        if (c_.op == Op::sample) return set_alone("min_p", o_.min_p, {-0.1, 1.5, kNan});
        return {};
      default:
        if (backward && c_.softcap > 0) return absent("forward x");
        if (c_.op != Op::sample || a_.find("top_k") != nullptr) return {};
        return set("top_k", o_.top_k, {std::int64_t{-1}, kLeast});
    }
  }

  // What only a backward has.
  std::string gradient() {
    switch (bytes_.below(4)) {
      case 0: return c_.d_sinks ? absent("sinks") : "";
      case 1: return c_.d_additive ? absent("mask.additive") : "";
      case 2: {
        Tensor& d_k = a_.find("d_k")->shown;
        d_k.dtype = d_k.dtype == DType::f32 ? DType::f16 : DType::f32;
        return fmt::format("d_k is {}, unlike d_q", name(d_k.dtype));
      }
      default: {
        Argument& pages = a_.all.emplace_back();
        pages.name = "pages";
        pages.shown = a_["mask.lengths"].present() ? a_["mask.lengths"] : a_["x"];
        return "keys are in pages";
      }
    }
  }

  // What a tensor's elements say. Nobody looks at a GPU's, to do which would be to wait for it.
  std::string value() {
    if (device == Device::cuda) return {};
    const std::int64_t cols = c_.cols();
    switch (bytes_.below(6)) {
      case 0: return element("target", {-1, static_cast<double>(cols), 0x1p31, -0x1p63, 0x1p62});
      case 1:
        if (!attends())
          return element("mask.lengths", {-1, static_cast<double>(cols + 1), -0x1p63, 0x1p62});
        return element("mask.lengths", {-1, 0x1p30, -0x1p31});
      case 2:
        if (attends()) return element("q_offsets", {-1, 0x1p30, -0x1p31});
        return reads_logits() ? element("scale", {kNan, kInf, -kInf}) : "";
      case 3:
        if (attends()) return element("kv_offsets", {-1, 0x1p30, -0x1p31});
        return reads_logits() ? element("temperature", {kNan, kInf, -1}) : "";
      case 4:
        if (attends()) return page();
        return element("top_p", {0, -1, 1.5, kNan});
      default:
        if (attends()) return {};
        return bytes_.one_in(2) ? element("min_p", {-0.5, 2, kNan})
                                : element("top_k", {-1, -0x1p63});
    }
  }

  std::string element(std::string_view name, std::initializer_list<double> bad) {
    Argument* a = a_.find(name);
    if (a == nullptr || a->array.size() == 0 || c_.rows() == 0) return {};
    double value = bytes_.pick(bad);
    const DType dtype = a->array.tensor().dtype;
    if (dtype == DType::i32) value = std::clamp(value, -0x1p31, 0x1p31 - 1);
    const auto ignored = static_cast<double>(o_.ignore_index);
    if (name == "target" && c_.op != Op::topk && value == ignored) return {};
    const std::int64_t at = bytes_.below(a->array.size());
    a->array.set(at, value);
    return fmt::format("{}[{}] is {}", name, at, a->array.get(at));
  }

  // One that a length reaches.
  std::string page() {
    Argument* a = a_.find("pages");
    const Argument* lengths = a_.find("mask.lengths");
    if (a == nullptr || lengths == nullptr || a->array.size() == 0) return {};
    for (std::int64_t b = 0; b < lengths->array.size(); ++b) {
      if (lengths->array.get(b) == 0) continue;
      const std::int64_t table = a->array.tensor().shape[1];
      const auto reached =
          (static_cast<std::int64_t>(lengths->array.get(b)) + c_.page - 1) / c_.page;
      const std::int64_t at = b * table + bytes_.below(reached);
      const auto count = static_cast<double>(call_[cli::array::k].tensor().shape[0]);
      a->array.set(at, bytes_.pick({-1.0, count, 0x1p31 - 1, -0x1p31}));
      return fmt::format("pages[{}] is {}", at, a->array.get(at));
    }
    return {};
  }

  std::string absent(std::string_view name) {
    Argument* a = a_.find(name);
    if (a == nullptr) return {};
    a->shown = {};
    return fmt::format("{} is absent", name);
  }

  bool is_required(std::string_view name) const {
    if (name == "lse") return attends_backward();
    for (const std::string_view each :
         {"x", "y", "k", "v", "indices", "target", "dloss", "loss", "o", "d_o", "d_k", "d_v"}) {
      if (name == each) return true;
    }
    return false;
  }

  std::string tensor() {
    auto at = a_.all.begin();
    std::advance(at, bytes_.below(static_cast<std::int64_t>(a_.all.size())));
    Argument& a = *at;
    // Read only with a softcap.
    if (a.name == "forward x" && c_.softcap == 0) return {};
    Tensor& t = a.shown;
    const auto say = [&](const std::string& what) { return fmt::format("{}: {}", a.name, what); };
    const auto rank = static_cast<std::size_t>(t.rank);
    const bool some = a.array.size() > 0;
    const std::size_t width = size_of(t.dtype);
    const std::size_t d = rank == 0 ? 0 : static_cast<std::size_t>(bytes_.below(t.rank));
    switch (bytes_.below(10)) {
      case 0:
        if (!some) return {};
        t.data = nullptr;
        return say("null");
      case 1:
        if (!some || width == 1) return {};
        t.data = static_cast<std::byte*>(t.data) + 1;
        return say("misaligned");
      case 2:
        if (rank == 0) return {};
        t.shape[d] = bytes_.pick({std::int64_t{-1}, kLeast});
        return say("a negative extent");
      case 3:
        if (rank == 0 || !some) return {};
        t.shape[d] = bytes_.pick({kMost, kMost / 2});
        if (t.strides[d] == 0 && !a.written) t.strides[d] = 1;
        return say("an extent that overflows");
      case 4: {
        t.rank = bytes_.pick({kMaxRank + 1, std::numeric_limits<int>::max()});
        return say("too many dimensions");
      }
      case 5:
        if (!is_required(a.name)) return {};
        return absent(a.name);
      case 6: {
        const bool integers = t.dtype == DType::i32 || t.dtype == DType::i64;
        t.dtype = bytes_.one_in(2) ? static_cast<DType>(bytes_.from(7, 255))
                  : integers       ? DType::f32
                                   : DType::i64;
        return say("a dtype that it cannot have");
      }
      case 7:
        if (!some || rank == 0 || t.shape[d] < 2) return {};
        t.strides[d] = bytes_.pick({kLeast, kMost, kMost / 2});
        return say("a stride that overflows");
      case 8:
        if (!some || !a.written || rank == 0 || t.shape[d] < 2) return {};
        t.strides[d] = 0;
        return say("an output whose elements are one");
      default: return aliased(a);
    }
  }

  // An output that begins where another tensor does, which is right only for the same
  // tensor in place.
  std::string aliased(Argument& a) {
    if (!a.written || a.array.size() == 0) return {};
    auto at = a_.all.begin();
    std::advance(at, bytes_.below(static_cast<std::int64_t>(a_.all.size())));
    const Argument& other = *at;
    const bool unread = other.name == "forward x" && c_.softcap == 0;
    if (&other == &a || other.array.size() == 0 || unread) return {};
    const bool twins = !attends_backward() &&
                       (other.name == "x" || other.name == "dy" || other.name == "forward x") &&
                       (a.name == "y" || a.name == "x" || a.name == "dy");
    if (twins) return {};
    a.shown.data = other.shown.data;
    return fmt::format("{}: overlaps {}", a.name, other.name);
  }

  Bytes& bytes_;
  const cli::Call& call_;
  const cli::Case& c_;
  Arguments& a_;
  Options& o_;
};

}  // namespace

std::string spoil(Bytes& bytes, const cli::Call& call, Arguments& arguments) {
  return Spoiling(bytes, call, arguments).run();
}

}  // namespace onepass::fuzz

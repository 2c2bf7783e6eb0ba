// Every kernel that is compiled is one that some call runs: problems over all that tells kernels
// apart, through the public functions, on each GPU that the dispatcher knows, by its choice and by
// every variant and launch that can be asked for. What is not reached costs a build seconds and a
// program bytes for nothing.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cli/gpu/apparatus.hpp"
#include "dispatch/choose.hpp"
#include "dispatch/machines.hpp"
#include "dispatch/variant.hpp"
#include "onepass/onepass.hpp"
#include "tests/kernels/fake_runtime.hpp"

namespace onepass {
namespace {

using Kernels = std::set<const void*>;

// Memory that nobody reads, each tensor's far from all others', `skew` bytes past a multiple of 16.
void* place(int which, int skew = 0) {
  constexpr std::uintptr_t kApart = std::uintptr_t{1} << 42;
  return reinterpret_cast<void*>((static_cast<std::uintptr_t>(which) + 1) * kApart +
                                 static_cast<std::uintptr_t>(skew));
}

const Context& gpu_context() {
  static const Context context =
      Context::cuda().trusting().with_workspace(place(90), std::size_t{1} << 62);
  return context;
}

// Calls call(variant) for the dispatcher's choice, and for each variant by its name; of calls
// without options for each launch by its name, too.
template <class Call>
void each_way(Op op, bool plain, const std::vector<std::string>& launches, Call call) {
  call(std::string_view{});
  for (const Variant& v : variants(op)) {
    if (v.device == Device::cuda) call(v.name);
  }
  if (!plain) return;
  for (const std::string& name : launches) call(name);
}

// Refusals are as good as answers here.
void ignore(const Status&) {}

constexpr std::array kFloats = {DType::f32, DType::f16, DType::bf16, DType::f64};

// Powers of two, and what is beside them.
std::vector<std::int64_t> around_powers(int from, int to) {
  std::vector<std::int64_t> all;
  for (int power = from; power <= to; ++power) {
    for (const int more : {-1, 0, 8}) all.push_back((std::int64_t{1} << power) + more);
  }
  return all;
}

std::vector<std::string> row_launches() {
  std::vector<std::string> names;
  for (const std::string packs : {":2", ":4", ":8"}) {
    for (const std::string variant : {"gpu_group", "gpu_block", "gpu_grid"}) {
      names.push_back(variant + packs);
    }
    for (const std::string split : {":2", ":16"}) names.push_back("gpu_cluster" + packs + split);
  }
  return names;
}

struct RowCall {
  Op op;
  DType in, out;
  std::int64_t rows, cols;
  int skew;
  double scale;
  Reduction reduction;
  std::string_view variant;
};

void run_rows(const RowCall& c) {
  const auto in = [&](int which) {
    return ConstTensor(place(which, c.skew), c.in, {c.rows, c.cols});
  };
  const auto out = [&](int which) { return Tensor(place(which, c.skew), c.out, {c.rows, c.cols}); };
  const Context& context = gpu_context();
  const SoftmaxOptions forward{.scale = c.scale, .variant = c.variant};
  const BackwardOptions backward{.scale = c.scale, .variant = c.variant};
  const CrossEntropyOptions loss{.scale = c.scale, .reduction = c.reduction, .variant = c.variant};
  const ConstTensor target(place(4), DType::i64, {c.rows});
  const bool reduced = c.reduction != Reduction::none;
  const Tensor losses =
      reduced ? Tensor(place(5), DType::f32, {}) : Tensor(place(5), DType::f32, {c.rows});
  switch (c.op) {
    case Op::softmax: return ignore(softmax(context, in(0), out(1), forward));
    case Op::log_softmax: return ignore(log_softmax(context, in(0), out(1), forward));
    case Op::logsumexp:
      return ignore(logsumexp(context, in(0), Tensor(place(1), c.out, {c.rows}), forward));
    case Op::softmax_backward:
      return ignore(softmax_backward(context, in(0), in(2), out(1), backward));
    case Op::log_softmax_backward:
      return ignore(log_softmax_backward(context, in(0), in(2), out(1), backward));
    case Op::cross_entropy: return ignore(cross_entropy(context, in(0), target, losses, loss));
    default:
      return ignore(cross_entropy_with_gradient(context, in(0), target, losses, out(1), loss));
  }
}

void reach_rows() {
  const std::vector<std::string> launches = row_launches();
  for (const Op op : {Op::softmax, Op::log_softmax, Op::logsumexp, Op::softmax_backward,
                      Op::log_softmax_backward, Op::cross_entropy, Op::cross_entropy_backward}) {
    for (const DType in : kFloats) {
      for (const DType out : {in, DType::f32}) {
        for (const std::int64_t cols : around_powers(3, 21)) {
          for (const std::int64_t rows : {1, 64, 4096}) {
            for (const int skew : {0, 8}) {
              for (const double scale : {1.0, 2.0}) {
                each_way(op, skew == 0 && scale == 1, launches, [&](std::string_view variant) {
                  run_rows({op, in, out, rows, cols, skew, scale, Reduction::none, variant});
                });
              }
            }
          }
        }
      }
    }
  }
  for (const Op op : {Op::cross_entropy, Op::cross_entropy_backward}) {
    run_rows({op, DType::f32, DType::f32, 64, 1024, 0, 1, Reduction::mean, {}});
  }
}

std::vector<std::string> select_launches() {
  std::vector<std::string> names;
  for (const std::string threads : {":128", ":256", ":512"}) {
    for (const std::string launch :
         {"gpu_block:1", "gpu_cluster:2", "gpu_cluster:4", "gpu_cluster:16", "gpu_guess:4",
          "gpu_guess:16", "gpu_grid:4", "gpu_grid:64"}) {
      names.push_back(launch + threads);
    }
  }
  for (const std::string threads : {":32", ":64", ":512"}) {
    for (const std::string split : {"1", "4"}) names.push_back("gpu_stream:" + split + threads);
  }
  return names;
}

void reach_topk_and_samples() {
  const std::vector<std::string> launches = select_launches();
  for (const DType in : kFloats) {
    for (const std::int64_t cols : around_powers(3, 18)) {
      for (const std::int64_t rows : {1, 8, 33, 300}) {
        for (const int skew : {0, 4}) {
          for (const bool masked : {false, true}) {
            const ConstTensor x(place(0, skew), in, {rows, cols});
            const Mask mask = masked ? causal() : Mask{};
            for (const std::int64_t k : {1, 8, 32, 64, 128, 256, 300, 3000}) {
              if (k > cols) break;
              const DType out = k == 8 ? in : DType::f32;  // a walk gives what it takes
              each_way(Op::topk, skew == 0 && !masked, launches, [&](std::string_view variant) {
                ignore(softmax_topk(gpu_context(), x, Tensor(place(1), out, {rows, k}),
                                    Tensor(place(2), DType::i64, {rows, k}),
                                    {.mask = mask, .variant = variant}));
              });
            }
            for (const std::int64_t top_k : {0, 50, 100, 1000}) {
              each_way(Op::sample, skew == 0 && !masked, launches, [&](std::string_view variant) {
                ignore(sample(gpu_context(), x, Tensor(place(1), DType::i64, {rows}),
                              {.top_k = top_k, .top_p = 0.9, .mask = mask, .variant = variant}));
              });
            }
          }
        }
      }
    }
  }
}

void reach_gates() {
  for (const DType in : {DType::f32, DType::f16, DType::bf16}) {
    for (const std::int64_t experts : {8, 60, 64, 160, 256, 384, 512, 768, 1024}) {
      for (const std::int64_t k : {1, 8, 32}) {
        for (const int skew : {0, 4}) {
          for (const GateScore score : {GateScore::softmax, GateScore::sigmoid}) {
            for (const bool biased : {false, true}) {
              if (k > experts) continue;
              GateOptions options{.score = score};
              if (biased) options.bias = ConstTensor(place(3), DType::f32, {experts});
              ignore(gate(gpu_context(), ConstTensor(place(0, skew), in, {100, experts}),
                          Tensor(place(1), DType::f32, {100, k}),
                          Tensor(place(2), DType::i32, {100, k}), options));
            }
          }
        }
      }
    }
  }
}

// What an attention has beside its inputs.
enum class Extra { none, causal, softcap, lengths };

void reach_attention() {
  for (const DType in : {DType::f32, DType::f16, DType::bf16}) {
    for (const std::int64_t dim : {16, 64, 80, 96, 128, 160, 192, 256, 320, 512}) {
      for (const std::int64_t heads : {1, 32}) {
        for (const std::int64_t queries : {1, 64, 1000, 4096}) {
          for (const std::int64_t keys : {64, 1024, 4096, 65536}) {
            for (const int skew : {0, 2}) {
              for (const Extra extra :
                   {Extra::none, Extra::causal, Extra::softcap, Extra::lengths}) {
                AttentionOptions options;
                options.mask.causal = extra == Extra::causal;
                if (extra == Extra::softcap) options.softcap = 30;
                if (extra == Extra::lengths) {
                  options.mask.lengths = ConstTensor(place(5), DType::i32, {1});
                }
                each_way(Op::attention, false, {}, [&](std::string_view variant) {
                  options.variant = variant;
                  ignore(attention(gpu_context(),
                                   ConstTensor(place(0, skew), in, {1, heads, queries, dim}),
                                   ConstTensor(place(1), in, {1, heads, keys, dim}),
                                   ConstTensor(place(2), in, {1, heads, keys, dim}),
                                   Tensor(place(3), in, {1, heads, queries, dim}), options));
                });
              }
            }
          }
        }
      }
    }
  }
  const auto half = [](int which) { return Tensor(place(which), DType::f16, {1, 4, 64, 64}); };
  const auto lse = [](int which) { return Tensor(place(which), DType::f32, {1, 4, 64}); };
  ignore(merge_attention(gpu_context(), half(0), lse(1), half(2), lse(3), half(4)));
  ignore(merge_attention_backward(gpu_context(), half(0), lse(1), half(2), lse(3), half(4), {},
                                  half(5), lse(6), half(7), lse(8)));
}

void reach_attention_backward() {
  for (const DType in : {DType::f32, DType::f16, DType::bf16}) {
    for (const std::int64_t dim : {16, 64, 80, 96, 128, 160, 192, 256, 320, 512}) {
      for (const std::int64_t heads : {1, 4}) {
        const auto tensor = [&](int which) {
          return Tensor(place(which), in, {1, heads, 64, dim});
        };
        const Tensor lse(place(4), DType::f32, {1, heads, 64});
        const auto run_each = [&](AttentionBackwardOptions options) {
          each_way(Op::attention_backward, false, {}, [&](std::string_view variant) {
            options.variant = variant;
            ignore(attention_backward(gpu_context(), tensor(0), tensor(1), tensor(2), tensor(3),
                                      lse, tensor(5), tensor(6), tensor(7), tensor(8), options));
          });
        };
        AttentionBackwardOptions options;
        run_each(options);  // all that a walk takes
        options.sinks = ConstTensor(place(9), DType::f32, {heads});
        options.d_sinks = Tensor(place(10), DType::f32, {heads});
        options.mask.lengths = ConstTensor(place(11), DType::i32, {1});
        for (const bool masked : {false, true}) {
          if (masked) {
            options.mask.additive = ConstTensor(place(12), DType::f32, {64, 64});
            options.d_additive = Tensor(place(13), DType::f32, {64, 64});
          }
          run_each(options);
        }
      }
    }
  }
}

void reach_all() {
  reach_rows();
  reach_topk_and_samples();
  reach_gates();
  reach_attention();
  reach_attention_backward();
  std::array<std::byte, 16> bytes{};
  const std::array<std::span<std::byte>, 1> arrays = {bytes};
  ignore(gpu::arrive_late(arrays));
}

// What the calls run on each of the GPUs that the dispatcher knows.
const std::map<std::string_view, Kernels>& reached() {
  static const auto by_gpu = [] {
    std::map<std::string_view, Kernels> kernels;
    for (const Machine& machine : known_gpus()) {
      fake::use(machine);
      reach_all();
      kernels[machine.name] = fake::take_reached();
    }
    return kernels;
  }();
  return by_gpu;
}

TEST(KernelReachTest, EachCompiledKernelIsRunBySomeCall) {
  ASSERT_GT(fake::kernels().size(), 100U);
  for (const auto& [kernel, name] : fake::kernels()) {
    const bool runs = std::ranges::any_of(
        reached(), [&](const auto& of_gpu) { return of_gpu.second.contains(kernel); });
    EXPECT_TRUE(runs) << name;
  }
}

// Of these a GPU without clusters has the names alone.
TEST(KernelReachTest, AGpuWithoutClustersRunsNoKernelOfThem) {
  for (const void* kernel : reached().at("a100")) {
    const std::string& name = fake::kernels().at(kernel);
    for (const std::string_view only :
         {"hopper::hopper_kernel", "guess_rows", "sample_guess_rows"}) {
      EXPECT_EQ(name.find(only), std::string::npos) << name;
    }
  }
}

}  // namespace
}  // namespace onepass

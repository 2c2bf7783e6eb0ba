#include "cli/measure/peers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "cli/gpu/apparatus.hpp"
#include "cli/measure/peers_cudnn.hpp"
#include "core/problem.hpp"
#include "runtime/workers.hpp"

#ifdef ONEPASS_HAS_ONEDNN
#include <oneapi/dnnl/dnnl.hpp>
#endif

namespace onepass::cli {
namespace {

// copy: as many bytes read as the op reads and writes together, halved, and as many written, by as
// many threads. The time no kernel that moves these bytes once can be much below.
Status prepare_cpu_copy(const Call& call, int threads, std::function<void()>& run) {
  struct Buffers {
    AlignedBytes from, to;
  };
  const auto buffers = std::make_shared<Buffers>();
  Problem problem;
  if (Status status = describe(call.spec(), problem); !status.ok()) return status;
  const auto size = static_cast<std::size_t>(least_bytes(problem) / 2);
  if (!buffers->from.allocate(size) || !buffers->to.allocate(size)) {
    return {Code::out_of_memory, fmt::format("copy: no memory for 2 x {} bytes", size)};
  }
  std::memset(buffers->to.data(), 1, size);
  const std::size_t available = std::min(size, call.in().bytes() / 2);
  for (std::size_t at = 0; at < size; at += available) {
    std::memcpy(buffers->from.data() + at, call.in().tensor().data, std::min(available, size - at));
  }
  run = [buffers, size, threads] {
    run_team(threads, [&](Team& team) {
      const auto workers = static_cast<std::size_t>(team.size());
      const auto rank = static_cast<std::size_t>(team.rank());
      const std::size_t begin = size / 64 * rank / workers * 64;
      const std::size_t end = rank + 1 == workers ? size : size / 64 * (rank + 1) / workers * 64;
      std::memcpy(buffers->to.data() + begin, buffers->from.data() + begin, end - begin);
    });
  };
  return {};
}

// The same on the GPU: the driver's own copy.
Status prepare_gpu_copy(const Call& call, std::function<void()>& run) {
  struct Buffers {
    gpu::Buffer from, to;
  };
  const auto buffers = std::make_shared<Buffers>();
  Problem problem;
  if (Status status = describe(call.spec(), problem); !status.ok()) return status;
  const auto size = static_cast<std::size_t>(least_bytes(problem) / 2);
  if (Status status = buffers->from.allocate(size); !status.ok()) return status;
  if (Status status = buffers->to.allocate(size); !status.ok()) return status;
  const std::byte* data = static_cast<const std::byte*>(call.view(call.in()).data);
  if (Status status = gpu::copy(buffers->from.data(), data, std::min(size, call.in().bytes() / 2));
      !status.ok()) {
    return status;
  }
  run = [buffers, size] {
    if (const Status status = gpu::copy(buffers->to.data(), buffers->from.data(), size);
        !status.ok()) {
      throw std::runtime_error(status.message());
    }
  };
  return {};
}

Status prepare_copy(const Call& call, int threads, std::function<void()>& run) {
  return call.spec().device == Device::cuda ? prepare_gpu_copy(call, run)
                                            : prepare_cpu_copy(call, threads, run);
}

bool computes_any(Op, Device) { return true; }
bool computes_softmax(Op op, Device device) {
  return device == Device::cpu && (op == Op::softmax || op == Op::log_softmax);
}
std::string no_obstacle() { return {}; }

#ifdef ONEPASS_HAS_ONEDNN

dnnl::memory::data_type onednn_type(DType dtype) {
  switch (dtype) {
    case DType::f16: return dnnl::memory::data_type::f16;
    case DType::bf16: return dnnl::memory::data_type::bf16;
    case DType::f32: return dnnl::memory::data_type::f32;
    default: return dnnl::memory::data_type::undef;
  }
}

// One primitive, made once, with its memories bound: only its execution is timed.
template <class Primitive>
std::function<void()> onednn_primitive(const dnnl::memory::desc& shape, int axis,
                                       const Call& call) {
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const dnnl::prop_kind inference = dnnl::prop_kind::forward_inference;
#if DNNL_VERSION_MAJOR >= 3
  const auto algorithm = call.spec().op == Op::softmax ? dnnl::algorithm::softmax_accurate
                                                       : dnnl::algorithm::softmax_log;
  const typename Primitive::primitive_desc description(engine, inference, algorithm, shape, shape,
                                                       axis);
#else
  const typename Primitive::primitive_desc description({inference, shape, axis}, engine);
#endif
  const dnnl::memory from(shape, engine, call.in().tensor().data);
  const dnnl::memory to(shape, engine, call.out().tensor().data);
  return [primitive = Primitive(description), stream = dnnl::stream(engine), from, to]() mutable {
    primitive.execute(stream, {{DNNL_ARG_SRC, from}, {DNNL_ARG_DST, to}});
    stream.wait();
  };
}

Status prepare_onednn(const Call& call, int threads, std::function<void()>& run) {
  const Case& spec = call.spec();
  Problem problem;
  if (Status status = describe(spec, problem); !status.ok()) return status;
  if (spec.in != spec.out || spec.in == DType::f64 || !problem.plain || !problem.whole_rows ||
      spec.lse) {
    return {Code::unsupported, "onednn: softmax of one dtype without options only"};
  }
  set_max_threads(threads);
  const Tensor& t = call.in().tensor();
  const auto rank = static_cast<std::size_t>(t.rank);
  const dnnl::memory::desc shape(
      dnnl::memory::dims(t.shape.begin(), t.shape.begin() + static_cast<std::ptrdiff_t>(rank)),
      onednn_type(spec.in),
      dnnl::memory::dims(t.strides.begin(), t.strides.begin() + static_cast<std::ptrdiff_t>(rank)));
  const auto axis = static_cast<int>(spec.axis_index());
  try {
#if DNNL_VERSION_MAJOR >= 3
    run = onednn_primitive<dnnl::softmax_forward>(shape, axis, call);
#else
    run = spec.op == Op::softmax ? onednn_primitive<dnnl::softmax_forward>(shape, axis, call)
                                 : onednn_primitive<dnnl::logsoftmax_forward>(shape, axis, call);
#endif
  } catch (const dnnl::error& error) {
    return {Code::unsupported, fmt::format("onednn: {} {}", name(spec.in), error.what())};
  }
  return {};
}

std::string onednn_obstacle() { return {}; }

#else

Status prepare_onednn(const Call&, int, std::function<void()>&) {
  return {Code::unsupported, "onednn: not in this build"};
}
std::string onednn_obstacle() { return "oneDNN was not found when this was built"; }

#endif

constexpr Peer kPeers[] = {
    {"onednn", "oneDNN (Debian libdnnl-dev)", "the library of deep-learning primitives for CPUs",
     computes_softmax, onednn_obstacle, prepare_onednn},
    {"cudnn_accurate", "a GPU and cuDNN", "NVIDIA's library, with the maximum subtracted",
     cudnn_computes, cudnn_obstacle, prepare_cudnn_accurate},
    {"cudnn_fast", "a GPU and cuDNN",
     "NVIDIA's library, without the maximum: large inputs overflow", cudnn_computes, cudnn_obstacle,
     prepare_cudnn_fast},
    {"cudnn_sdpa", "a GPU, cuDNN and its frontend headers", "NVIDIA's library: its own attention",
     cudnn_attends, cudnn_sdpa_obstacle, prepare_cudnn_sdpa},
    {"copy", "nothing", "a plain copy of the same bytes, on the same device", computes_any,
     no_obstacle, prepare_copy},
};

}  // namespace

std::span<const Peer> peers() { return kPeers; }

const Peer* find_peer(std::string_view name) {
  for (const Peer& peer : kPeers) {
    if (peer.name == name) return &peer;
  }
  return nullptr;
}

std::string missing(std::span<const Peer> peers, std::span<const Case> cases) {
  std::string lines;
  for (const Peer& peer : peers) {
    const auto computes = [&](const Case& c) { return peer.computes(c.op, c.device); };
    if (std::none_of(cases.begin(), cases.end(), computes)) continue;
    if (const std::string why = peer.obstacle(); !why.empty()) {
      lines += fmt::format("Without {}: {}\n", peer.name, why);
    }
  }
  return lines;
}

}  // namespace onepass::cli

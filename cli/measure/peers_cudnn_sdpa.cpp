// cuDNN's attention, through the graph API as its frontend headers spell it.

#include <fmt/format.h>

#include <memory>
#include <unordered_map>

#include "cli/measure/peers_cudnn.hpp"
#include "runtime/gpu.hpp"

#ifdef ONEPASS_HAS_CUDNN_FRONTEND
#define CUDNN_FRONTEND_SKIP_JSON_LIB  // graphs are not printed here
#include <cudnn_frontend.h>
#endif

namespace onepass::cli {

bool cudnn_attends(Op op, Device device) { return device == Device::cuda && op == Op::attention; }

#ifdef ONEPASS_HAS_CUDNN_FRONTEND
namespace {

namespace fe = cudnn_frontend;

enum Uid : std::int64_t { kQ = 1, kK, kV, kO };

fe::graph::Tensor_attributes described(const Tensor& t, Uid uid) {
  return fe::graph::Tensor_attributes()
      .set_uid(uid)
      .set_dim({t.shape.begin(), t.shape.begin() + 4})
      .set_stride({t.strides.begin(), t.strides.begin() + 4});
}

Status status_of(fe::error_t error) {
  if (error.is_good()) return {};
  return {Code::unsupported, fmt::format("cudnn: {}", error.get_message())};
}

// Attention of the call's shapes and strides, chosen by cuDNN's own heuristics.
Status build(const Call& call, cudnnContext* cudnn, fe::graph::Graph& graph) {
  const Case& spec = call.spec();
  graph.set_io_data_type(spec.in == DType::f16 ? fe::DataType_t::HALF : fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  const auto q = graph.tensor(described(call.view(call.in()), kQ));
  const auto k = graph.tensor(described(call.view(call[array::k]), kK));
  const auto v = graph.tensor(described(call.view(call[array::v]), kV));
  auto options = fe::graph::SDPA_attributes().set_generate_stats(false).set_attn_scale(
      static_cast<float>(spec.scale));
  if (spec.causal) {  // where queries and keys are as many, both diagonals are one
    spec.shape[2] == spec.keys ? options.set_causal_mask(true)
                               : options.set_causal_mask_bottom_right(true);
  }
  const auto o = graph.sdpa(q, k, v, options)[0];
  const Tensor out = call.view(call.out());
  o->set_output(true)
      .set_uid(kO)
      .set_dim({out.shape.begin(), out.shape.begin() + 4})
      .set_stride({out.strides.begin(), out.strides.begin() + 4});
  return status_of(graph.build(cudnn, {fe::HeurMode_t::A}));
}

}  // namespace

std::string cudnn_sdpa_obstacle() { return cudnn_obstacle(); }

Status prepare_cudnn_sdpa(const Call& call, int, std::function<void()>& run) {
  const Case& spec = call.spec();
  Problem problem;
  if (Status status = describe(spec, problem); !status.ok()) return status;
  const AttentionFacts& a = problem.attention;
  const bool plain = !a.lengths && !a.q_offsets && a.page == 0 && !a.softcap && !a.additive &&
                     !a.boolean && !a.alibi && !a.sinks && a.window_left < 0 &&
                     a.window_right < 0 && a.split == 0 && !spec.lse;
  if (!plain || spec.in != spec.out || (spec.in != DType::f16 && spec.in != DType::bf16)) {
    return {Code::unsupported, "cudnn: attention in f16 or bf16, causal or not, only"};
  }
  cudnnContext* cudnn = nullptr;
  if (Status status = cudnn_handle(cudnn); !status.ok()) return status;
  struct Built {
    fe::graph::Graph graph;
    gpu::Buffer workspace;
    std::unordered_map<std::int64_t, void*> data;
  };
  const auto built = std::make_shared<Built>();
  if (Status status = build(call, cudnn, built->graph); !status.ok()) return status;
  std::int64_t bytes = 0;
  if (Status status = status_of(built->graph.get_workspace_size(bytes)); !status.ok()) {
    return status;
  }
  if (Status status = built->workspace.allocate(static_cast<std::size_t>(bytes)); !status.ok()) {
    return status;
  }
  built->data = {{kQ, call.view(call.in()).data},
                 {kK, call.view(call[array::k]).data},
                 {kV, call.view(call[array::v]).data},
                 {kO, call.view(call.out()).data}};
  run = [built, cudnn] {
    const Status status =
        status_of(built->graph.execute(cudnn, built->data, built->workspace.data()));
    if (!status.ok()) throw std::runtime_error(status.message());
  };
  return {};
}

#else

std::string cudnn_sdpa_obstacle() {
  return "cuDNN or its frontend headers were not found when this was built";
}

Status prepare_cudnn_sdpa(const Call&, int, std::function<void()>&) {
  return {Code::unsupported, cudnn_sdpa_obstacle()};
}

#endif

}  // namespace onepass::cli

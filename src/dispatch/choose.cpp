#include "dispatch/choose.hpp"

#include <algorithm>
#include <sstream>

#include "dispatch/attention.hpp"
#include "ops/select/gpu/policy.hpp"
#include "rows/gpu/plan.hpp"
#include "dispatch/tuning.hpp"
#include "ops/loss/gpu/plan.hpp"
#include "core/reasons.hpp"
#include "ops/softmax/cpu/limits.hpp"
#include "rows/cpu/layout.hpp"
#include "ops/select/cpu/pieces.hpp"
#include "dispatch/variant.hpp"

namespace onepass {
namespace {

std::size_t compute_bytes(const Problem& p) { return size_of(compute_type(p.in)); }

int worthwhile_threads(const Problem& p, const Machine& m, Reasons* reasons) {
  const std::int64_t elements = p.rows * p.cols;
  const std::int64_t useful = std::max<std::int64_t>(1, elements / m.tuning.grain);
  const int threads = static_cast<int>(std::min<std::int64_t>(m.threads, useful));
  say(reasons, "threads = ", threads, ": ", elements, " elements keep ", useful, " busy at ",
      m.tuning.grain, " each, the machine has ", m.threads);
  return threads;
}

// Whether whole rows would leave threads idle that pieces of rows would not.
bool worth_splitting(const Problem& p, const Machine& m, int threads, Reasons* reasons) {
  if (threads == 1) return false;
  if (p.batch_invariant) {
    say(reasons, "rows whole: a row's bits shall not depend on the other rows");
    return false;
  }
  if (p.cols < m.tuning.split_cols) {
    say(reasons, "rows whole: ", p.cols, " columns are fewer than the ", m.tuning.split_cols,
        " from which a meeting of threads pays");
    return false;
  }
  const std::int64_t rounds = ceil_div(p.rows, threads);
  const double busy = static_cast<double>(p.rows) / static_cast<double>(rounds * threads);
  const bool split = busy < 0.8;
  say(reasons, split ? "rows cut" : "rows whole", ": ", p.rows, " whole rows would keep ", threads,
      " threads ", static_cast<int>(busy * 100), " % busy");
  return split;
}

std::string_view best_variant(const Problem& p, const Machine& m, int threads, Reasons* reasons) {
  const bool maps_rows = p.op == Op::softmax || p.op == Op::log_softmax;
  if (maps_rows && refuse_rows_apart(p, m).empty()) {
    say(reasons, "cpu_lanes: the axis is not the innermost, neighbours in memory are rows");
    return "cpu_lanes";
  }
  if (p.op != Op::gate && worth_splitting(p, m, threads, reasons)) {
    say(reasons, "cpu_split: ", threads, " threads share each row");
    return "cpu_split";
  }
  if (maps_rows && p.cols <= m.tuning.short_cols && refuse_long(p, m).empty()) {
    say(reasons, "cpu_short: ", p.cols, " columns, at most ", m.tuning.short_cols,
        ", and no options");
    return "cpu_short";
  }
  say(reasons, "cpu_row: the general case");
  return "cpu_row";
}

Plan complete(std::string_view variant, const Problem& p, const Machine& m, int threads,
              Reasons* reasons) {
  Plan plan{.variant = variant, .threads = threads};
  if (variant == "cpu_serial") {
    plan.threads = 1;
    return plan;
  }
  if (variant == "cpu_split") plan.split = threads;
  if (variant == "cpu_split" && chooses(p.op)) {
    plan.scratch_bytes = p.in == DType::f64 ? PieceTable<double>::bytes(p.cols, p.k, plan.split)
                                            : PieceTable<float>::bytes(p.cols, p.k, plan.split);
    say(reasons, "a piece leaves its ", p.k, " candidates: ", plan.scratch_bytes, " bytes");
  }
  const bool tiled = variant == "cpu_row" || variant == "cpu_split";
  if (tiled && p.op == Op::softmax) {
    // A row that long is never kept; its size need not fit the type that counts it.
    constexpr std::int64_t longest = std::int64_t{1} << 48;
    const auto kept =
        static_cast<std::size_t>(kept_elements(std::min(p.cols, longest), plan.split)) *
        compute_bytes(p);
    const int sharing = p.batch_invariant ? m.threads : plan.threads;
    const double room = std::max(m.tuning.resident_share * static_cast<double>(m.l2),
                                 m.tuning.resident_l3_share * static_cast<double>(m.l3) / sharing);
    plan.resident = static_cast<double>(kept) <= room;
    plan.scratch_bytes = plan.resident ? kept : 0;
    say(reasons, plan.resident ? "weights stay in cache: " : "x is read twice: the weights take ",
        kept, " bytes a thread, and there is room for ", static_cast<std::int64_t>(room));
  }
  const double written = static_cast<double>(p.rows) * static_cast<double>(p.cols) *
                         static_cast<double>(size_of(p.out)) * traffic(p.op).writes;
  if (tiled && p.batch_invariant) {  // streams begin where the output is aligned
    say(reasons, "stores through the caches: a row's bits shall not depend on where it lies");
    return plan;
  }
  if (tiled && m.tuning.streaming_bytes > 0 && written > 0 && !p.in_place && p.unit_stride) {
    plan.streaming = written >= static_cast<double>(m.tuning.streaming_bytes);
    say(reasons, plan.streaming ? "streaming stores: " : "stores through the caches: ", written,
        " bytes are written, the limit is ", m.tuning.streaming_bytes);
  }
  return plan;
}

void add_loss_scratch(const Problem& p, Plan& plan) {
  plan.scratch_bytes = static_cast<std::size_t>(round_up(
                           static_cast<std::int64_t>(plan.scratch_bytes), sizeof(double))) +
                       gpu_rows::loss_scratch_bytes(p);
}

Plan choose_on_gpu(const Problem& p, const Machine& m, Reasons* reasons) {
  if (const std::string refusal = gpu_rows::refuse_no_gpu(p, m); !refusal.empty()) {
    say(reasons, "nothing runs this: ", refusal);
    return {};
  }
  if (chooses(p.op)) {
    const bool wide = p.in == DType::f64 && p.op != Op::sample;
    const std::string refusal = wide               ? gpu_choose::refuse_wide(p, m)
                                : p.op == Op::gate ? gpu_choose::refuse_gate(p, m)
                                                   : gpu_choose::refuse_any_k(p, m);
    if (!refusal.empty()) {
      say(reasons, "nothing runs this: ", name(p.op), ": ", refusal);
      return {};
    }
    const Plan plan = wide               ? gpu_choose::wide(p, m)
                      : p.op == Op::gate ? gpu_choose::warp(p, m)
                                         : gpu_choose::best(p, m);
    say(reasons, plan.variant, ": ", p.rows, " rows of ", p.cols, ", for ", m.gpu.processors,
        " processors");
    say(reasons, plan.split, " blocks a row: ", plan.blocks, " of ", plan.threads, " threads");
    return plan;
  }
  if (p.weighted) {
    Plan plan = gpu_rows::weighted(p, m);
    add_loss_scratch(p, plan);
    say(reasons, plan.variant, ": ", p.rows, " rows of ", gpu_rows::weighted_packs(p),
        " packs of 16 bytes, whose classes have ",
        p.probability_bytes > 0 ? "probabilities" : "weights");
    say(reasons, plan.row_threads, " threads a row, ", plan.threads, " a block, ", plan.blocks,
        " blocks; ", plan.resident ? "a row is read once" : "what no block can hold is read twice");
    return plan;
  }
  // Without regard to the number of rows: as if there were many.
  Problem judged = p;
  if (p.batch_invariant) judged.rows = 1024;
  const auto tuned = m.tuned != nullptr ? m.tuned->find(judged, m) : std::nullopt;
  const gpu_rows::Launch launch = tuned ? *tuned : gpu_rows::derived_launch(judged, m);
  const bool by_rows = launch.kernel == gpu_rows::Kernel::grid;  // how it cuts a row
  Plan plan = gpu_rows::plan_of(launch, by_rows ? judged : p, m);
  if (by_rows) plan.blocks = std::min(plan.blocks, std::max<std::int64_t>(p.rows, 1) * plan.split);
  add_loss_scratch(p, plan);
  say(reasons, plan.variant, ": ", p.rows, " rows of ", gpu_rows::packs(p),
      " packs of 16 bytes, for ", m.gpu.processors, " processors",
      plan.general ? "; options or dtypes that have no kernel of their own"
      : plan.whole ? "; all of them whole, for which there are shorter kernels"
                   : "");
  say(reasons, tuned ? "measured: the quickest at the nearest point of the tuning table"
                     : "derived from the machine's limits: no measured point is near");
  if (p.batch_invariant) say(reasons, "chosen by the columns alone: batch_invariant");
  say(reasons, plan.blocks, " blocks of ", plan.threads, " threads, ", plan.packs,
      " packs a thread in registers, ", plan.split, " blocks a row, ", plan.shared_bytes,
      " bytes of shared memory");
  return plan;
}

}  // namespace

Plan choose(const Problem& problem, const Machine& machine, Reasons* reasons) {
  if (problem.op == Op::attention) return attention_plan::choose(problem, machine, reasons);
  if (machine.device() == Device::cuda) return choose_on_gpu(problem, machine, reasons);
  const int threads = worthwhile_threads(problem, machine, reasons);
  return complete(best_variant(problem, machine, threads, reasons), problem, machine, threads,
                  reasons);
}

Status plan_variant(std::string_view variant, const Problem& problem, const Machine& machine,
                    Plan& plan, Reasons* reasons) {
  if (problem.op == Op::attention) {
    return attention_plan::plan_variant(variant, problem, machine, plan, reasons);
  }
  const auto launch = chooses(problem.op) ? std::nullopt : gpu_rows::launch_named(variant);
  const auto named =
      chooses(problem.op) ? gpu_choose::plan_named(variant, problem, machine) : std::nullopt;
  // Whose launch it is, so that it can refuse before anybody asks which.
  const std::string_view of_launch =
      chooses(problem.op) ? variant.substr(0, variant.find(':')) : variant;
  const Variant* found =
      find_variant(problem.op, launch ? gpu_rows::variant_of(*launch) : of_launch);
  if (found == nullptr) return no_such_variant(problem.op, variant);
  if (const std::string refusal = found->refuses(problem, machine); !refusal.empty()) {
    return {Code::unsupported, "variant: " + std::string(variant) + " cannot run this: " + refusal};
  }
  if (of_launch != variant && !named) return no_such_variant(problem.op, variant);
  say(reasons, variant, ": asked for by name");
  if (launch && !gpu_rows::fits(*launch, problem, machine)) {
    return {Code::unsupported, "variant: " + std::string(variant) + " does not hold such rows"};
  }
  if (found->device == Device::cuda) {
    plan = launch  ? gpu_rows::plan_of(*launch, problem, machine)
           : named ? *named
                   : found->geometry(problem, machine);
    plan.variant = found->name;
    add_loss_scratch(problem, plan);
    say(reasons, plan.blocks, " blocks of ", plan.threads, " threads: ", found->idea);
    return {};
  }
  const int threads = worthwhile_threads(problem, machine, reasons);
  plan = complete(found->name, problem, machine, threads, reasons);
  return {};
}

std::vector<std::string> launch_names(const Problem& problem, const Machine& machine) {
  if (problem.op == Op::gate || problem.op == Op::attention) return {};
  if (chooses(problem.op)) return gpu_choose::launch_names(problem, machine);
  std::vector<std::string> names;
  for (const gpu_rows::Launch& launch : gpu_rows::candidates(problem, machine)) {
    names.push_back(gpu_rows::name_of(launch));
  }
  return names;
}

double planned_bytes(const Problem& p, const Plan& plan, const Machine& m) {
  if (p.op == Op::attention) return attention_plan::planned_bytes(p, plan, m);
  const Traffic t = traffic(p.op);
  const double elements = static_cast<double>(p.rows) * static_cast<double>(p.cols);
  const double input = static_cast<double>(size_of(p.in)) * t.reads + p.probability_bytes;
  if (m.device() == Device::cuda) {
    const double again = p.weighted ? input : static_cast<double>(size_of(p.in));
    return least_bytes(p) + (plan.resident ? 0.0 : elements * again);
  }
  const double read = elements * input;
  // What the finish reads again comes from L2 when a row of the inputs fits there.
  const double row_bytes = static_cast<double>(ceil_div(p.cols, plan.split)) * input;
  const bool again = t.writes > 0 && !plan.resident && row_bytes > static_cast<double>(m.l2);
  return read * (again ? 2 : 1) + elements * static_cast<double>(size_of(p.out)) * t.writes;
}

std::string to_string(const Plan& plan) {
  std::ostringstream text;
  text << plan.variant;
  if (plan.blocks > 0) text << " blocks=" << plan.blocks;
  text << " threads=" << plan.threads << " split=" << plan.split
       << " resident=" << (plan.resident ? "yes" : "no")
       << " streaming=" << (plan.streaming ? "yes" : "no") << " scratch=" << plan.scratch_bytes;
  if (plan.blocks > 0) text << " shared=" << plan.shared_bytes;
  if (plan.packs > 0) text << " packs=" << plan.packs;
  if (plan.row_threads > 0) text << " row_threads=" << plan.row_threads;
  if (plan.keys > 0) text << " keys=" << plan.keys;
  if (plan.cluster > 1) text << " cluster=" << plan.cluster;
  if (plan.whole) text << " whole";
  if (plan.general) text << " general";
  return text.str();
}

}  // namespace onepass

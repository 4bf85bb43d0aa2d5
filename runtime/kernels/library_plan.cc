#include "runtime/kernels/library_plan.h"

#include <algorithm>

#include <fmt/format.h>

namespace hyper::runtime {
namespace {

using dnnl::memory;

// Scratchpads get their offset when all buffers are known.
constexpr int64_t kScratchpad = -1;
constexpr int64_t kBufferAlignment = 64;

int64_t Bytes(const memory::desc& desc) { return static_cast<int64_t>(desc.get_size()); }

// Reorders before and after one primitive, run in order.
class CallSequence : public PreparedKernel {
 public:
  explicit CallSequence(dnnl::stream stream) : stream_(std::move(stream)) {}
  void Add(OneDnnCall call) { calls_.push_back(std::move(call)); }
  Status Run(const Team&) override {
    for (const OneDnnCall& call : calls_) HYPER_RETURN_IF_ERROR(call.Run(stream_.get()));
    return Status::Ok();
  }

 private:
  dnnl::stream stream_;
  std::vector<OneDnnCall> calls_;
};

}  // namespace

dnnl::primitive_attr UserScratchpad() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

Result<LibraryPlan> PlanLibraryCall(const std::string& primitive, const std::string& op,
                                    const ir::Attributes& attributes, Operands operands,
                                    int64_t cap) {
  return Guard([&]() -> Result<LibraryPlan> {
    if (primitive == "onednn.matmul") return PlanMatmul(attributes, operands, cap);
    if (primitive == "onednn.conv") return PlanConvolution(op, attributes, operands, cap);
    return DataLoss(fmt::format(
        "unknown library kernel '{}'; this runtime has onednn.matmul, onednn.conv", primitive));
  });
}

std::unique_ptr<PreparedKernel> Instantiate(const LibraryPlan& plan, Operands operands, char* arena,
                                            char* workspace) {
  const dnnl::engine engine = CpuEngine();
  auto kernel = std::make_unique<CallSequence>(dnnl::stream(engine));
  for (const LibraryPlan::Call& call : plan.calls) {
    std::vector<std::pair<int, memory>> arguments;
    for (const auto& [index, place] : call.arguments) {
      char* data = nullptr;
      if (place.operand >= 0) {
        data = arena + operands[static_cast<size_t>(place.operand)].offset();
      } else if (Bytes(place.desc) > 0) {
        data = workspace + place.offset;
      }
      arguments.emplace_back(index, memory(place.desc, engine, data));
    }
    kernel->Add(OneDnnCall(call.make(), std::move(arguments)));
  }
  return kernel;
}

LibraryPlan::Place LibraryPlanner::Input(int index, const memory::desc& have,
                                         const memory::desc& wanted) {
  const LibraryPlan::Place place{have, index, 0};
  if (have == wanted) return place;
  const LibraryPlan::Place converted = Buffer(wanted);
  before_.push_back(Reorder(place, converted, false));
  return converted;
}

LibraryPlan::Place LibraryPlanner::Output(int index, const memory::desc& have,
                                          const memory::desc& wanted, bool adds) {
  const LibraryPlan::Place place{have, index, 0};
  const bool accumulate = operands_[static_cast<size_t>(index)].access() == program::ACCUMULATE;
  if (have == wanted && (adds || !accumulate)) return place;
  const LibraryPlan::Place converted = Buffer(wanted);
  after_.push_back(Reorder(converted, place, accumulate));
  return converted;
}

LibraryPlan LibraryPlanner::Finish(std::function<dnnl::primitive()> make,
                                   std::vector<std::pair<int, LibraryPlan::Place>> arguments,
                                   const memory::desc& scratchpad) {
  arguments.push_back({DNNL_ARG_SCRATCHPAD, {scratchpad, -1, kScratchpad}});
  LibraryPlan plan;
  plan.calls = std::move(before_);
  plan.calls.push_back({std::move(make), std::move(arguments)});
  plan.calls.insert(plan.calls.end(), after_.begin(), after_.end());
  plan.workspace_bytes = buffer_bytes_;
  const int64_t behind_buffers =
      (buffer_bytes_ + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
  for (LibraryPlan::Call& call : plan.calls) {
    for (auto& [index, place] : call.arguments) {
      if (place.operand >= 0 || place.offset != kScratchpad) continue;
      place.offset = behind_buffers;
      if (Bytes(place.desc) == 0) continue;
      plan.workspace_bytes = std::max(plan.workspace_bytes, behind_buffers + Bytes(place.desc));
    }
  }
  return plan;
}

LibraryPlan::Place LibraryPlanner::Buffer(const memory::desc& desc) {
  const int64_t offset =
      (buffer_bytes_ + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
  buffer_bytes_ = offset + Bytes(desc);
  return {desc, -1, offset};
}

LibraryPlan::Call LibraryPlanner::Reorder(const LibraryPlan::Place& from,
                                          const LibraryPlan::Place& to, bool accumulate) const {
  dnnl::primitive_attr attr = UserScratchpad();
  if (accumulate) {
    dnnl::post_ops post;
    post.append_sum(1.0F);
    attr.set_post_ops(post);
  }
  const dnnl::engine engine = CpuEngine();
  const dnnl::reorder::primitive_desc pd(engine, from.desc, engine, to.desc, attr);
  return {[pd] { return dnnl::reorder(pd); },
          {{DNNL_ARG_FROM, from},
           {DNNL_ARG_TO, to},
           {DNNL_ARG_SCRATCHPAD, {pd.scratchpad_desc(), -1, kScratchpad}}}};
}

}  // namespace hyper::runtime

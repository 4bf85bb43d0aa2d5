#include "runtime/kernels/onednn_assembler.h"

namespace hyper::runtime {
namespace {

using dnnl::memory;

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

memory PrimitiveAssembler::Input(const program::Operand& operand, const memory::desc& have,
                                 const memory::desc& wanted) {
  memory place(have, engine_, context_.arena + operand.offset());
  if (have == wanted) return place;
  memory converted = Buffer(wanted);
  AddReorder(place, converted, false, &before_);
  return converted;
}

memory PrimitiveAssembler::Output(const program::Operand& operand, const memory::desc& have,
                                  const memory::desc& wanted, bool adds) {
  memory place(have, engine_, context_.arena + operand.offset());
  const bool accumulate = operand.access() == program::ACCUMULATE;
  if (have == wanted && (adds || !accumulate)) return place;
  memory converted = Buffer(wanted);
  AddReorder(converted, place, accumulate, &after_);
  return converted;
}

std::unique_ptr<PreparedKernel> PrimitiveAssembler::Finish(
    const dnnl::primitive& primitive, std::vector<std::pair<int, memory>> arguments,
    const memory::desc& scratchpad) {
  arguments.push_back(ScratchArgument(scratchpad, engine_, context_.scratch, offset_));
  auto kernel = std::make_unique<CallSequence>(dnnl::stream(engine_));
  for (OneDnnCall& call : before_) kernel->Add(std::move(call));
  kernel->Add(OneDnnCall(primitive, std::move(arguments)));
  for (OneDnnCall& call : after_) kernel->Add(std::move(call));
  return kernel;
}

memory PrimitiveAssembler::Buffer(const memory::desc& desc) {
  auto [argument, buffer] = ScratchArgument(desc, engine_, context_.scratch, offset_);
  offset_ += (static_cast<int64_t>(desc.get_size()) + 63) / 64 * 64;
  return buffer;
}

void PrimitiveAssembler::AddReorder(memory& from, memory& to, bool accumulate,
                                    std::vector<OneDnnCall>* calls) {
  dnnl::primitive_attr attr = UserScratchpad();
  if (accumulate) {
    dnnl::post_ops post;
    post.append_sum(1.0F);
    attr.set_post_ops(post);
  }
  const dnnl::reorder::primitive_desc pd(from, to, attr);
  HYPER_CHECK(static_cast<int64_t>(pd.scratchpad_desc().get_size()) <= kReorderBytes,
              "a reorder wants a larger scratchpad than is set aside");
  std::vector<std::pair<int, memory>> arguments = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
  arguments.push_back(ScratchArgument(pd.scratchpad_desc(), engine_, context_.scratch, 0));
  calls->emplace_back(dnnl::reorder(pd), std::move(arguments));
}

}  // namespace hyper::runtime

// Puts one oneDNN primitive together with the reorders its operands need: operands that do not lie in
// the layout the primitive wants are converted in the executor's scratch block.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "runtime/kernels/kernels.h"
#include "runtime/kernels/onednn_util.h"

namespace hyper::runtime {

dnnl::primitive_attr UserScratchpad();

// Thread safety: none; used while preparing. The scratch block holds, in this order: the reorders'
// own scratchpads, the converted operands, the primitive's scratchpad.
class PrimitiveAssembler {
 public:
  explicit PrimitiveAssembler(const PrepareContext& context)
      : context_(context), engine_(CpuEngine()) {}

  // The operand in layout `wanted`: itself when it already lies so, else a scratch buffer that a
  // reorder fills before the primitive runs.
  dnnl::memory Input(const program::Operand& operand, const dnnl::memory::desc& have,
                     const dnnl::memory::desc& wanted);
  // The result in layout `wanted`. When it lies elsewhere, or is accumulated and the primitive
  // cannot add (`adds` false), it is reordered (and added) into place afterwards.
  dnnl::memory Output(const program::Operand& operand, const dnnl::memory::desc& have,
                      const dnnl::memory::desc& wanted, bool adds = false);

  std::unique_ptr<PreparedKernel> Finish(const dnnl::primitive& primitive,
                                         std::vector<std::pair<int, dnnl::memory>> arguments,
                                         const dnnl::memory::desc& scratchpad);

 private:
  dnnl::memory Buffer(const dnnl::memory::desc& desc);
  void AddReorder(dnnl::memory& from, dnnl::memory& to, bool accumulate,
                  std::vector<OneDnnCall>* calls);

  static constexpr int64_t kReorderBytes = 1 << 16;
  const PrepareContext& context_;
  dnnl::engine engine_;
  int64_t offset_ = kReorderBytes;
  std::vector<OneDnnCall> before_;
  std::vector<OneDnnCall> after_;
};

}  // namespace hyper::runtime

// Hand-built lowered modules for tests below lowering: a small builder and training steps with the
// lifetimes of real networks. Header only; shares no code with the planner.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lower/lowered.h"

namespace hyper::testing {

class LoweredBuilder {
 public:
  int Root(const std::string& name, lower::Storage storage, ir::Dims dims,
           ir::DType dtype = ir::DType::kF32, const std::string& slot = {}) {
    lower::Root root;
    root.name = name;
    root.storage = storage;
    root.dtype = dtype;
    root.elements = ir::ElementCount(dims);
    root.slot = slot;
    root.logical = {dtype, dims};
    root.logical_strides = ir::RowMajorStrides(dims);
    module.roots.push_back(root);
    return static_cast<int>(module.roots.size()) - 1;
  }
  int Temporary(ir::Dims dims, ir::DType dtype = ir::DType::kF32) {
    return Root("%" + std::to_string(module.roots.size()), lower::Storage::kTemporary,
                std::move(dims), dtype);
  }

  // The whole of a root.
  lower::Operand Whole(int root, lower::Access access) const {
    const lower::Root& r = module.roots[static_cast<size_t>(root)];
    return {{root}, {r.logical, r.logical_strides, 0}, access};
  }
  lower::Operand Read(int root) const { return Whole(root, lower::Access::kRead); }
  lower::Operand Write(int root) const { return Whole(root, lower::Access::kWrite); }
  lower::Operand Add(int root) const { return Whole(root, lower::Access::kAccumulate); }

  lower::LoweredFunction& Function(const std::string& name) {
    module.functions.push_back({.name = name});
    return module.functions.back();
  }
  static lower::LoweredOp& Call(lower::LoweredFunction& f, const std::string& source,
                                std::vector<lower::Operand> operands) {
    lower::Kernel kernel = KernelFor(operands);
    return Call(f, source, std::move(operands), std::move(kernel));
  }
  static lower::LoweredOp& Call(lower::LoweredFunction& f, const std::string& source,
                                std::vector<lower::Operand> operands, lower::Kernel kernel) {
    f.ops.push_back(
        {.kernel = std::move(kernel), .operands = std::move(operands), .source = source});
    for (const lower::Operand& o : f.ops.back().operands) {
      f.ops.back().bytes_moved += o.view.type.bytes();
    }
    return f.ops.back();
  }
  // A call of a core op that has such operands: a copy, else the first product that fits; where
  // none does (tests that look at places alone), one without attributes.
  static lower::Kernel KernelFor(const std::vector<lower::Operand>& operands) {
    std::vector<ir::Dims> dims;
    for (const lower::Operand& o : operands) {
      if (o.access != lower::Access::kWorkspace) dims.push_back(o.view.type.dims);
    }
    if (dims.size() == 2 && dims[0] == dims[1]) {
      return lower::LibraryKernel{"onednn.matmul", "copy", {}};
    }
    for (const char* spec :
         {"ab,bc->ac", "ab,ac->bc", "ab,cb->ac", "ab,ab->ab", "ab,ab->", ",ab->ab"}) {
      if (dims.size() == 3 && Fits(spec, dims)) {
        return lower::LibraryKernel{"onednn.matmul", "dot", {{"spec", std::string(spec)}}};
      }
    }
    return lower::LibraryKernel{"onednn.matmul", "dot", {}};
  }
  static bool Fits(const std::string& spec, const std::vector<ir::Dims>& dims) {
    std::map<char, int64_t> extents;
    size_t operand = 0, axis = 0;
    for (const char c : spec + ",") {
      if (c == '-') continue;
      if (c == ',' || c == '>') {
        if (dims[operand++].size() != axis) return false;
        axis = 0;
        continue;
      }
      if (axis >= dims[operand].size()) return false;
      const int64_t extent = dims[operand][axis++];
      if (extents.emplace(c, extent).first->second != extent) return false;
    }
    return true;
  }
  static void Marker(lower::LoweredFunction& f, std::vector<std::string> parameters) {
    f.ops.push_back({.kernel = lower::MarkerKernel{std::move(parameters)}});
  }

  lower::LoweredModule module;
};

// A training module: `blocks` blocks of width[i] -> width[i+1] elements per sample, each a matmul
// and an activation whose results backward reads again, a residual sum every second block and a
// workspace per matmul; @step_first, @step_next, @update and @eval.
inline lower::LoweredModule TrainingModule(const std::vector<int64_t>& widths, int64_t batch,
                                           bool residual) {
  using lower::Access;
  using lower::Storage;
  LoweredBuilder b;
  const int blocks = static_cast<int>(widths.size()) - 1;
  std::vector<int> weight, gradient, momentum;
  const auto name = [](int i) { return "block" + std::to_string(i) + ".weight"; };
  for (int i = 0; i < blocks; ++i) {
    const ir::Dims dims = {widths[static_cast<size_t>(i)], widths[static_cast<size_t>(i) + 1]};
    weight.push_back(b.Root(name(i), Storage::kParameter, dims));
    gradient.push_back(b.Root(name(i), Storage::kGradient, dims));
    momentum.push_back(b.Root(name(i), Storage::kOptimizer, dims, ir::DType::kF32, "momentum"));
    b.module.parameter_order.insert(b.module.parameter_order.begin(), name(i));
  }
  const int input = b.Root("x", Storage::kInput, {batch, widths[0]});
  const int rate = b.Root("lr", Storage::kScalar, {});
  const auto activation = [&](int i) {
    return b.Temporary({batch, widths[static_cast<size_t>(i)]});
  };

  const auto forward = [&](lower::LoweredFunction& f, std::vector<int>& pre,
                           std::vector<int>& post) {
    post = {input};
    for (int i = 0; i < blocks; ++i) {
      const int workspace = b.Temporary({batch * 8}, ir::DType::kU8);
      pre.push_back(activation(i + 1));
      b.Call(f, name(i),
             {b.Read(post.back()), b.Read(weight[static_cast<size_t>(i)]), b.Write(pre.back()),
              b.Whole(workspace, Access::kWorkspace)});
      int out = activation(i + 1);
      std::vector<lower::Operand> operands = {b.Read(pre.back())};
      const bool sum =
          residual && i > 0 && widths[static_cast<size_t>(i)] == widths[static_cast<size_t>(i) + 1];
      if (sum) operands.push_back(b.Read(post.back()));
      operands.push_back(b.Write(out));
      b.Call(f, name(i) + ".relu", operands);
      post.push_back(out);
    }
  };
  for (const bool first : {true, false}) {
    lower::LoweredFunction f{.name = first ? "step_first" : "step_next"};
    std::vector<int> pre, post;
    forward(f, pre, post);
    const int loss = b.Root(f.name + ".loss", Storage::kResult, {});
    int upstream = activation(blocks);
    b.Call(f, "loss", {b.Read(post.back()), b.Read(post.back()), b.Write(loss)});
    b.Call(f, "loss", {b.Read(post.back()), b.Write(upstream)});
    for (int i = blocks - 1; i >= 0; --i) {
      const int before = activation(i + 1);
      b.Call(f, name(i) + ".relu",
             {b.Read(pre[static_cast<size_t>(i)]), b.Read(upstream), b.Write(before)});
      b.Call(f, name(i),
             {b.Read(post[static_cast<size_t>(i)]), b.Read(before),
              first ? b.Write(gradient[static_cast<size_t>(i)])
                    : b.Add(gradient[static_cast<size_t>(i)])});
      b.Marker(f, {name(i)});
      if (i == 0) break;
      const int next = activation(i);
      b.Call(f, name(i), {b.Read(before), b.Read(weight[static_cast<size_t>(i)]), b.Write(next)});
      upstream = next;
    }
    f.results.push_back({"loss.loss", b.Read(loss)});
    b.module.functions.push_back(std::move(f));
  }
  lower::LoweredFunction& update = b.Function("update");
  for (int i = 0; i < blocks; ++i) {
    const auto k = static_cast<size_t>(i);
    b.Call(update, name(i),
           {b.Read(rate), b.Read(gradient[k]), b.Whole(momentum[k], Access::kReadWrite)});
    b.Call(update, name(i), {b.Read(momentum[k]), b.Whole(weight[k], Access::kReadWrite)});
  }
  lower::LoweredFunction eval{.name = "eval"};
  std::vector<int> pre, post;
  forward(eval, pre, post);
  const int output = b.Root("logits", Storage::kResult, {batch, widths.back()});
  b.Call(eval, "output", {b.Read(post.back()), b.Write(output)});
  eval.results.push_back({"logits", b.Read(output)});
  b.module.functions.push_back(std::move(eval));
  return std::move(b.module);
}

}  // namespace hyper::testing

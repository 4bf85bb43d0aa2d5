#include "tests/support/lowered_runner.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "codegen/emit.h"
#include "ir/op_def.h"
#include "ir/reference/reference.h"

namespace hyper::testing {
namespace {

constexpr size_t kGuard = 128;
constexpr std::byte kPoison{0xFF};  // NaN in every float dtype
constexpr const char* kFlags =
    "-O3 -march=native -ffp-contract=off -fno-math-errno -fno-trapping-math -fopenmp-simd -shared "
    "-fPIC -w";

// Copies between a strided view and a dense row-major buffer.
void CopyView(const lower::View& view, std::byte* at, std::byte* dense, bool to_dense) {
  const int64_t size = ir::DTypeBytes(view.type.dtype);
  const int64_t n = view.type.elements();
  for (int64_t e = 0; e < n; ++e) {
    int64_t rest = e, offset = 0;
    for (size_t d = view.strides.size(); d-- > 0;) {
      offset += rest % view.type.dims[d] * view.strides[d];
      rest /= view.type.dims[d];
    }
    std::byte* x = at + offset * size;
    std::byte* y = dense + e * size;
    std::memcpy(to_dense ? y : x, to_dense ? x : y, static_cast<size_t>(size));
  }
}

}  // namespace

KernelSet::KernelSet() {
  std::string pattern = (std::filesystem::temp_directory_path() / "hyper_kernels_XXXXXX").string();
  HYPER_CHECK(mkdtemp(pattern.data()) != nullptr, "mkdtemp");
  folder_ = pattern;
}

KernelSet::~KernelSet() {
  for (void* h : handles_) dlclose(h);
  std::filesystem::remove_all(folder_);
}

Status KernelSet::Add(const lower::LoweredModule& module) {
  for (const lower::LoweredFunction& f : module.functions) {
    for (const lower::LoweredOp& op : f.ops) {
      const auto* k = std::get_if<lower::GeneratedKernel>(&op.kernel);
      if (k == nullptr) continue;
      HYPER_ASSIGN_OR_RETURN(const codegen::EmittedKernel e,
                             codegen::EmitCpuKernel(*k, op.operands));
      texts_[e.symbol] = e.text;
    }
  }
  return {};
}

// Two translation units at a time.
Status KernelSet::Compile() {
  constexpr int kUnits = 2;
  std::string command;
  for (int u = 0; u < kUnits; ++u) {
    const std::string stem = fmt::format("{}/kernels{}", folder_, u);
    std::ofstream out(stem + ".cc");
    out << codegen::CpuPrelude();
    int at = 0;
    for (const auto& [symbol, text] : texts_)
      if (at++ % kUnits == u) out << text << "\n";
    command += fmt::format("(c++ {0} {1}.cc -o {1}.so > {1}.log 2>&1) & ", kFlags, stem);
  }
  command += "wait";
  const int rc = std::system(command.c_str());
  for (int u = 0; u < kUnits; ++u) {
    const std::string stem = fmt::format("{}/kernels{}", folder_, u);
    void* handle = rc == 0 ? dlopen((stem + ".so").c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (handle == nullptr) {
      std::ifstream log(stem + ".log");
      std::string text((std::istreambuf_iterator<char>(log)), {});
      return Internal("kernels do not compile: " + text.substr(0, 4000));
    }
    handles_.push_back(handle);
  }
  return {};
}

KernelSet::Function KernelSet::Find(const std::string& symbol) const {
  for (void* h : handles_) {
    if (void* f = dlsym(h, symbol.c_str())) return reinterpret_cast<Function>(f);
  }
  return nullptr;
}

LoweredRunner::LoweredRunner(const lower::LoweredModule& module, const KernelSet& kernels)
    : module_(module), kernels_(kernels) {
  for (const lower::Root& r : module.roots) {
    const size_t bytes = static_cast<size_t>(r.elements * ir::DTypeBytes(r.dtype));
    memory_.emplace_back(bytes + 3 * kGuard, kPoison);
    std::byte* p = memory_.back().data() + kGuard;
    p += (64 - reinterpret_cast<uintptr_t>(p) % 64) % 64;
    base_.push_back(p);
    if (r.storage == lower::Storage::kConstant) {
      std::memcpy(p, r.constant.bytes().data(), r.constant.bytes().size());
    }
  }
}

void LoweredRunner::Poison() {
  for (size_t i = 0; i < base_.size(); ++i) {
    const lower::Root& r = module_.roots[i];
    if (r.storage != lower::Storage::kTemporary && r.storage != lower::Storage::kResult) continue;
    std::memset(base_[i], 0xFF, static_cast<size_t>(r.elements * ir::DTypeBytes(r.dtype)));
  }
}

bool LoweredRunner::Set(lower::Storage storage, const std::string& name,
                        const ir::HostTensor& value, const std::string& slot) {
  for (size_t i = 0; i < base_.size(); ++i) {
    const lower::Root& r = module_.roots[i];
    if (r.storage != storage || r.name != name || r.slot != slot) continue;
    std::memcpy(base_[i], value.bytes().data(), value.bytes().size());
    return true;
  }
  return false;
}

ir::HostTensor LoweredRunner::Get(lower::Storage storage, const std::string& name,
                                  const std::string& slot) const {
  for (size_t i = 0; i < base_.size(); ++i) {
    const lower::Root& r = module_.roots[i];
    if (r.storage != storage || r.name != name || r.slot != slot) continue;
    return ir::HostTensor(r.logical, {base_[i], static_cast<size_t>(r.logical.bytes())});
  }
  HYPER_CHECK(false, "no root named " + name);
}

std::byte* LoweredRunner::Address(const lower::Operand& operand) const {
  return base_[static_cast<size_t>(operand.root.index)] +
         operand.view.offset * ir::DTypeBytes(operand.view.type.dtype);
}

Status LoweredRunner::RunReferenceOp(const std::string& name, const ir::Attributes& attributes,
                                     int64_t op_id, const lower::LoweredOp& lowered) {
  const ir::OpDef* op = ir::CoreOps().Find(name);
  std::vector<std::vector<std::byte>> dense;
  std::vector<ir::ConstTensorRef> inputs;
  std::vector<ir::TensorRef> outputs;
  bool accumulate = false;
  for (const lower::Operand& o : lowered.operands) {
    dense.emplace_back(static_cast<size_t>(o.view.type.bytes()));
    if (o.access == lower::Access::kWorkspace) continue;
    CopyView(o.view, Address(o), dense.back().data(), true);
    if (o.access == lower::Access::kRead) {
      inputs.push_back({&o.view.type, dense.back().data()});
    } else {
      accumulate = accumulate || o.access == lower::Access::kAccumulate;
      outputs.push_back({&o.view.type, dense.back().data()});
    }
  }
  HYPER_RETURN_IF_ERROR(ir::RunReference(*op, attributes, op_id, inputs, outputs, accumulate));
  for (size_t i = 0; i < lowered.operands.size(); ++i) {
    const lower::Operand& o = lowered.operands[i];
    if (o.access == lower::Access::kRead || o.access == lower::Access::kWorkspace) continue;
    CopyView(o.view, Address(o), dense[i].data(), false);
  }
  return {};
}

Status LoweredRunner::CheckGuards(const std::string& where) const {
  for (size_t i = 0; i < memory_.size(); ++i) {
    const lower::Root& r = module_.roots[i];
    const std::byte* begin = memory_[i].data();
    const std::byte* end = begin + memory_[i].size();
    const std::byte* used = base_[i] + r.elements * ir::DTypeBytes(r.dtype);
    for (const std::byte* p = begin; p < end; ++p) {
      if ((p < base_[i] || p >= used) && *p != kPoison) {
        return Internal(fmt::format("{} wrote outside root {} '{}'", where, i, r.name));
      }
    }
  }
  return {};
}

Status LoweredRunner::Run(const std::string& function, int tasks) {
  for (const lower::LoweredFunction& f : module_.functions) {
    if (f.name != function) continue;
    for (size_t k = 0; k < f.ops.size(); ++k) {
      const lower::LoweredOp& op = f.ops[k];
      if (const auto* g = std::get_if<lower::GeneratedKernel>(&op.kernel)) {
        HYPER_ASSIGN_OR_RETURN(const codegen::EmittedKernel e,
                               codegen::EmitCpuKernel(*g, op.operands));
        const KernelSet::Function kernel = kernels_.Find(e.symbol);
        if (kernel == nullptr) return Internal("kernel was not compiled: " + e.symbol);
        std::vector<char*> operands;
        for (const lower::Operand& o : op.operands) {
          operands.push_back(reinterpret_cast<char*>(Address(o)));
        }
        for (int t = tasks; t-- > 0;) kernel(operands.data(), t, tasks);
      } else if (const auto* l = std::get_if<lower::LibraryKernel>(&op.kernel)) {
        HYPER_RETURN_IF_ERROR(RunReferenceOp(l->op, l->attributes, -1, op));
      } else if (const auto* r = std::get_if<lower::ReferenceKernel>(&op.kernel)) {
        HYPER_RETURN_IF_ERROR(RunReferenceOp(r->op, r->attributes, r->op_id, op));
      }
      HYPER_RETURN_IF_ERROR(CheckGuards(fmt::format("{} op {}", function, k)));
    }
    return {};
  }
  return NotFound("no function " + function);
}

Result<ir::HostTensor> LoweredRunner::Result_(const std::string& function,
                                              const std::string& name) const {
  for (const lower::LoweredFunction& f : module_.functions) {
    if (f.name != function) continue;
    for (const lower::LoweredFunction::Named& r : f.results) {
      if (r.name != name) continue;
      std::vector<std::byte> dense(static_cast<size_t>(r.operand.view.type.bytes()));
      CopyView(r.operand.view, Address(r.operand), dense.data(), true);
      return ir::HostTensor(r.operand.view.type, dense);
    }
  }
  return NotFound("no result " + name);
}

}  // namespace hyper::testing

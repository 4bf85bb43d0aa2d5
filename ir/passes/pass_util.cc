#include <cstring>

#include "ir/op_def.h"
#include "ir/passes/passes.h"

namespace hyper::ir {

void Replacements::Add(ValueId from, ValueId to) {
  const auto i = static_cast<size_t>(from.index);
  if (i >= to_.size()) to_.resize(i + 1);
  to_[i] = to;
  ++count_;
}

ValueId Replacements::Resolve(ValueId v) const {
  while (static_cast<size_t>(v.index) < to_.size() && to_[static_cast<size_t>(v.index)].valid()) {
    v = to_[static_cast<size_t>(v.index)];
  }
  return v;
}

void Replacements::Apply(Function& f) const {
  for (NodeId id : f.order()) {
    for (ValueId& v : f.node(id).inputs) v = Resolve(v);
  }
  for (FunctionResult& r : f.mutable_results()) r.value = Resolve(r.value);
}

std::vector<bool> ResultValues(const Function& f) {
  std::vector<bool> used(static_cast<size_t>(f.value_count()), false);
  for (const FunctionResult& r : f.results()) used[static_cast<size_t>(r.value.index)] = true;
  return used;
}

std::optional<HostTensor> SplatValue(const Function& f, ValueId v) {
  while (true) {
    const NodeId producer = f.value(v).producer;
    if (!producer.valid()) return std::nullopt;
    const Node& node = f.node(producer);
    const std::string_view op = node.op->name;
    if (op == "constant") {
      const HostTensor& tensor = node.attributes.Tensor("value");
      const std::span<const std::byte> bytes = tensor.bytes();
      const auto size = static_cast<size_t>(DTypeBytes(tensor.type().dtype));
      if (bytes.empty()) return std::nullopt;
      for (size_t at = size; at < bytes.size(); at += size) {
        if (std::memcmp(bytes.data(), bytes.data() + at, size) != 0) return std::nullopt;
      }
      return HostTensor({tensor.type().dtype, {}}, bytes.first(size));
    }
    if (op != "broadcast" && op != "reshape" && op != "transpose") return std::nullopt;
    v = node.inputs[0];
  }
}

}  // namespace hyper::ir

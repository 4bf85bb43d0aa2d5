#include "ir/attribute.h"

#include <array>

namespace hyper::ir {
namespace {

template <typename T>
const T& Get(const Attributes& attributes, std::string_view name) {
  const Attribute* a = attributes.Find(name);
  HYPER_CHECK(a != nullptr, "attribute '" + std::string(name) + "' is missing");
  const T* value = std::get_if<T>(a);
  HYPER_CHECK(value != nullptr, "attribute '" + std::string(name) + "' is a " +
                                    std::string(AttributeKindName(KindOf(*a))));
  return *value;
}

}  // namespace

std::string_view AttributeKindName(AttributeKind kind) {
  static constexpr std::array<std::string_view, 8> kNames = {"int",  "float", "bool", "string",
                                                             "dims", "dtype", "expr", "tensor"};
  return kNames[static_cast<size_t>(kind)];
}

const Attribute* Attributes::Find(std::string_view name) const {
  auto it = items_.find(name);
  return it == items_.end() ? nullptr : &it->second;
}

int64_t Attributes::Int(std::string_view name) const { return Get<int64_t>(*this, name); }
double Attributes::Float(std::string_view name) const { return Get<double>(*this, name); }
bool Attributes::Bool(std::string_view name) const { return Get<bool>(*this, name); }
const std::string& Attributes::String(std::string_view name) const {
  return Get<std::string>(*this, name);
}
const Dims& Attributes::GetDims(std::string_view name) const { return Get<Dims>(*this, name); }
DType Attributes::GetDType(std::string_view name) const { return Get<DType>(*this, name); }
const Expr& Attributes::GetExpr(std::string_view name) const { return Get<Expr>(*this, name); }
const HostTensor& Attributes::Tensor(std::string_view name) const {
  return Get<HostTensor>(*this, name);
}

}  // namespace hyper::ir

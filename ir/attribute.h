// Attributes of a node: a small ordered map from name to typed value. Value types.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ir/expr.h"
#include "ir/types.h"

namespace hyper::ir {

using Attribute = std::variant<int64_t, double, bool, std::string, Dims, DType, Expr, HostTensor>;

enum class AttributeKind : uint8_t {
  kInt,
  kFloat,
  kBool,
  kString,
  kDims,
  kDType,
  kExpr,
  kTensor,  // same order as the variant
};
std::string_view AttributeKindName(AttributeKind kind);
inline AttributeKind KindOf(const Attribute& a) { return static_cast<AttributeKind>(a.index()); }

class Attributes {
 public:
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<const std::string, Attribute>> items)
      : items_(items) {}
  void Set(std::string name, Attribute value) { items_[std::move(name)] = std::move(value); }
  bool Has(std::string_view name) const { return items_.find(name) != items_.end(); }
  const Attribute* Find(std::string_view name) const;
  // The value of an attribute that the op's record declares; a missing one is our bug.
  int64_t Int(std::string_view name) const;
  double Float(std::string_view name) const;
  bool Bool(std::string_view name) const;
  const std::string& String(std::string_view name) const;
  const Dims& GetDims(std::string_view name) const;
  DType GetDType(std::string_view name) const;
  const Expr& GetExpr(std::string_view name) const;
  const HostTensor& Tensor(std::string_view name) const;

  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  bool empty() const { return items_.empty(); }
  bool operator==(const Attributes&) const = default;

 private:
  std::map<std::string, Attribute, std::less<>> items_;
};

}  // namespace hyper::ir

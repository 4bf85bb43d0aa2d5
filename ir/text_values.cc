#include "ir/text_values.h"

#include <cmath>

#include "base/strings.h"
#include "ir/node_check.h"
#include "ir/number_text.h"
#include "ir/scalar_eval.h"

namespace hyper::ir {
namespace {

constexpr int64_t kInlineElements = 16;

Result<HostTensor> ParseTensorValue(Lexer& lexer, TensorType type) {
  if (lexer.Accept("hex")) {
    const size_t start = lexer.Position();
    HYPER_ASSIGN_OR_RETURN(const std::string hex, lexer.Quoted());
    if (static_cast<int64_t>(hex.size()) != 2 * type.bytes()) {
      return lexer.Error("expected " + std::to_string(2 * type.bytes()) + " hex digits for " +
                             type.ToString() + ", got " + std::to_string(hex.size()),
                         start);
    }
    std::vector<std::byte> data(hex.size() / 2);
    for (size_t i = 0; i < hex.size(); ++i) {
      const char c = hex[i];
      const bool digit = c >= '0' && c <= '9';
      if (!digit && !(c >= 'a' && c <= 'f')) return lexer.Error("not a hex digit", start + 1 + i);
      const int value = digit ? c - '0' : c - 'a' + 10;
      data[i / 2] = i % 2 == 0 ? static_cast<std::byte>(value << 4)
                               : data[i / 2] | static_cast<std::byte>(value);
    }
    if (type.dtype == DType::kBool) {
      for (std::byte b : data) {
        if (b > std::byte{1}) return lexer.Error("a bool is 00 or 01", start);
      }
    }
    return HostTensor(std::move(type), data);
  }
  HYPER_RETURN_IF_ERROR(lexer.Expect("["));
  if (type.elements() > kInlineElements) {
    return lexer.Error("more than 16 elements are written as hex \"...\"");
  }
  std::vector<Scalar> elements;
  for (int64_t i = 0; i < type.elements(); ++i) {
    if (i > 0) HYPER_RETURN_IF_ERROR(lexer.Expect(","));
    const size_t start = lexer.Position();
    const std::string_view text = lexer.Number();
    if (IsFloat(type.dtype)) {
      const std::optional<double> value = ParseFloat(type.dtype, text);
      if (!value) return lexer.Error("expected a number", start);
      elements.push_back({*value, 0});
    } else {
      const std::optional<int64_t> value = ParseInt(type.dtype, text);
      if (!value) {
        return lexer.Error("expected a value of " + std::string(DTypeName(type.dtype)), start);
      }
      elements.push_back({0, *value});
    }
  }
  HYPER_RETURN_IF_ERROR(lexer.Expect("]"));
  return TensorOf(std::move(type), elements);
}

std::string TensorText(const HostTensor& tensor) {
  const TensorType& type = tensor.type();
  std::string text = type.ToString();
  if (!tensor.defined()) return text + " undefined";  // refused by the verifier and the parser
  if (type.elements() <= kInlineElements) {
    std::string list = " [";
    std::vector<Scalar> elements;
    for (int64_t i = 0; i < type.elements(); ++i) {
      if (i > 0) list += ", ";
      Scalar& e = elements.emplace_back(ElementOf(tensor, i));
      list += IsFloat(type.dtype) ? FloatText(type.dtype, e.f) : IntText(type.dtype, e.i);
      if (std::isnan(e.f)) e.f = std::nan("");
    }
    // Numbers carry neither the payload nor the sign of a NaN: then the bytes are written.
    if (TensorOf(type, elements) == tensor) return text + list + "]";
  }
  static constexpr char kHex[] = "0123456789abcdef";
  text += " hex \"";
  for (std::byte b : tensor.bytes()) {
    text += kHex[static_cast<int>(b) >> 4];
    text += kHex[static_cast<int>(b) & 15];
  }
  return text + '"';
}

std::string FloatAttributeText(double value) {
  std::string text = FloatText(DType::kF64, value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";  // tells it from an int
  return text;
}

}  // namespace

std::string AttributeText(const Attribute& attribute) {
  switch (KindOf(attribute)) {
    case AttributeKind::kInt: return std::to_string(std::get<int64_t>(attribute));
    case AttributeKind::kFloat: return FloatAttributeText(std::get<double>(attribute));
    case AttributeKind::kBool: return std::get<bool>(attribute) ? "true" : "false";
    case AttributeKind::kString: return QuoteText(std::get<std::string>(attribute));
    case AttributeKind::kDims: return FormatDims(std::get<Dims>(attribute));
    case AttributeKind::kDType: return std::string(DTypeName(std::get<DType>(attribute)));
    case AttributeKind::kExpr: return "<" + std::get<Expr>(attribute).ToString() + ">";
    case AttributeKind::kTensor: return TensorText(std::get<HostTensor>(attribute));
  }
  return {};
}

std::string AttributesText(const Attributes& attributes) {
  if (attributes.empty()) return {};
  std::string text = "{";
  for (const auto& [name, value] : attributes) {
    if (text.size() > 1) text += ", ";
    text += name + " = " + AttributeText(value);
  }
  return text + "}";
}

Result<TensorType> ParseType(Lexer& lexer) {
  const size_t start = lexer.Position();
  const std::optional<DType> dtype = DTypeFromName(lexer.Word());
  if (!dtype) return lexer.Error("expected a type such as f32[2,3]", start);
  HYPER_ASSIGN_OR_RETURN(Dims dims, lexer.DimList());
  TensorType type{*dtype, std::move(dims)};
  if (const Status status = CheckType(type); !status.ok()) {
    return lexer.Error(status.message(), start);
  }
  return type;
}

Result<Attribute> ParseAttribute(Lexer& lexer, std::span<const DType> operand_dtypes) {
  const size_t start = lexer.Position();
  const char c = lexer.Peek();
  if (c == '"') {
    HYPER_ASSIGN_OR_RETURN(std::string text, lexer.Quoted());
    return Attribute(std::move(text));
  }
  if (c == '[') {
    HYPER_ASSIGN_OR_RETURN(Dims dims, lexer.DimList());
    return Attribute(std::move(dims));
  }
  if (lexer.Accept("<")) {
    HYPER_ASSIGN_OR_RETURN(const std::string_view raw, lexer.Until('>'));
    Result<Expr> expr = Guard([&] { return Expr::Parse(raw, operand_dtypes); });
    if (!expr.ok()) return lexer.Error(expr.status().message(), start);
    return Attribute(std::move(expr).value());
  }
  if (lexer.Accept("true")) return Attribute(true);
  if (lexer.Accept("false")) return Attribute(false);
  const std::string_view number = lexer.Number();
  if (!number.empty()) {
    if (const std::optional<int64_t> i = ParseInt(DType::kI64, number)) return Attribute(*i);
    const std::optional<double> f = ParseFloat(DType::kF64, number);
    if (!f) return lexer.Error("'" + std::string(number) + "' is not a number", start);
    return Attribute(*f);
  }
  const std::optional<DType> dtype = DTypeFromName(lexer.Word());
  if (!dtype) return lexer.Error("expected an attribute value", start);
  if (lexer.Peek() != '[') return Attribute(*dtype);
  HYPER_ASSIGN_OR_RETURN(Dims dims, lexer.DimList());
  TensorType type{*dtype, std::move(dims)};
  if (const Status status = CheckType(type); !status.ok()) {
    return lexer.Error(status.message(), start);
  }
  HYPER_ASSIGN_OR_RETURN(HostTensor tensor, ParseTensorValue(lexer, std::move(type)));
  return Attribute(std::move(tensor));
}

}  // namespace hyper::ir

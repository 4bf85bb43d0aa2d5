// Text form of scalar expressions. Grammar (also in ir/text.md):
//   expr := (name "=" term ";")* term
//   term := "x" N | "t" N | dtype "(" number ")" | ("cast." | "bitcast.") dtype "(" term ")"
//         | op "(" term ("," term)* ")"
// Values used twice, and terms nested too deep to read, get a name t0, t1, ...
#include <cctype>
#include <cmath>

#include "ir/expr.h"
#include "ir/number_text.h"
#include "ir/scalar_eval.h"

namespace hyper::ir {
namespace {

constexpr int kPrintDepth = 24;
constexpr int kParseDepth = 64;
constexpr size_t kMaxNodes = 100000;

class Parser {
 public:
  Parser(std::string_view text, std::span<const DType> inputs) : text_(text), inputs_(inputs) {}

  Result<Expr> Run() {
    while (true) {
      Skip();
      const size_t start = position_;
      const std::string_view word = Word();
      Skip();
      if (Temporary(word) && Peek() == '=') {
        ++position_;
        if (word != "t" + std::to_string(temporaries_.size())) {
          return Error("expected t" + std::to_string(temporaries_.size()) + " to be defined next");
        }
        HYPER_ASSIGN_OR_RETURN(const int value, Term(0));
        temporaries_.push_back(value);
        HYPER_RETURN_IF_ERROR(Expect(';'));
        continue;
      }
      position_ = start;
      HYPER_ASSIGN_OR_RETURN(const int root, Term(0));
      Skip();
      if (position_ != text_.size()) return Error("unexpected text after the expression");
      return builder_.Build(root);
    }
  }

 private:
  static bool Temporary(std::string_view word) {
    return word.size() >= 2 && word[0] == 't' && std::isdigit(static_cast<unsigned char>(word[1]));
  }
  Status Error(std::string message) const {
    return InvalidArgument("expression, column " + std::to_string(position_ + 1) + ": " +
                           std::move(message));
  }
  char Peek() const { return position_ < text_.size() ? text_[position_] : '\0'; }
  void Skip() {
    while (Peek() == ' ') ++position_;
  }
  std::string_view Word() {
    const size_t start = position_;
    while (std::isalnum(static_cast<unsigned char>(Peek())) || Peek() == '_') ++position_;
    return text_.substr(start, position_ - start);
  }
  Status Expect(char c) {
    Skip();
    if (Peek() != c) return Error(std::string("expected '") + c + "'");
    ++position_;
    return Status::Ok();
  }
  std::optional<int> Number(std::string_view digits) {
    const std::optional<int64_t> n = ParseInt(DType::kI32, digits);
    if (!n || *n < 0 || std::to_string(*n) != digits) return std::nullopt;
    return static_cast<int>(*n);
  }

  Result<int> Term(int depth);
  Result<int> ConstantTerm(DType dtype);

  std::string_view text_;
  std::span<const DType> inputs_;
  size_t position_ = 0;
  ExprBuilder builder_;
  std::vector<int> temporaries_;
};

Result<int> Parser::ConstantTerm(DType dtype) {
  HYPER_RETURN_IF_ERROR(Expect('('));
  Skip();
  const size_t start = position_;
  while (Peek() != ')' && Peek() != '\0' && Peek() != ' ') ++position_;
  const std::string_view number = text_.substr(start, position_ - start);
  int value = -1;
  if (IsFloat(dtype)) {
    const std::optional<double> v = ParseFloat(dtype, number);
    if (!v) return Error("'" + std::string(number) + "' is not a number");
    value = builder_.Constant(dtype, *v);
  } else {
    const std::optional<int64_t> v = ParseInt(dtype, number);
    if (!v) {
      return Error("'" + std::string(number) + "' is not a value of " +
                   std::string(DTypeName(dtype)));
    }
    value = builder_.ConstantInt(dtype, *v);
  }
  HYPER_RETURN_IF_ERROR(Expect(')'));
  return value;
}

Result<int> Parser::Term(int depth) {
  if (depth > kParseDepth) return Error("terms are nested too deep");
  if (builder_.nodes().size() > kMaxNodes) return Error("the expression is too large");
  Skip();
  const std::string_view word = Word();
  if (word.empty()) return Error("expected a term");
  if (word[0] == 'x' && word.size() > 1 && std::isdigit(static_cast<unsigned char>(word[1]))) {
    const std::optional<int> index = Number(word.substr(1));
    if (!index || static_cast<size_t>(*index) >= inputs_.size()) {
      return Error("no input '" + std::string(word) + "'; there are " +
                   std::to_string(inputs_.size()));
    }
    return builder_.Input(*index, inputs_[static_cast<size_t>(*index)]);
  }
  if (Temporary(word)) {
    const std::optional<int> index = Number(word.substr(1));
    if (!index || static_cast<size_t>(*index) >= temporaries_.size()) {
      return Error("'" + std::string(word) + "' is not defined");
    }
    return temporaries_[static_cast<size_t>(*index)];
  }
  if (const std::optional<DType> dtype = DTypeFromName(word)) return ConstantTerm(*dtype);
  std::optional<DType> cast_to;
  const bool bits = word == "bitcast";
  if (word == "cast" || bits) {
    HYPER_RETURN_IF_ERROR(Expect('.'));
    const std::string_view name = Word();
    cast_to = DTypeFromName(name);
    if (!cast_to) return Error("'" + std::string(name) + "' is not a dtype");
  }
  const ScalarOpInfo* info = nullptr;
  for (const ScalarOpInfo& candidate : ScalarOps()) {
    if (candidate.arity > 0 && candidate.name == word) info = &candidate;
  }
  if (info == nullptr) return Error("no scalar operator '" + std::string(word) + "'");
  HYPER_RETURN_IF_ERROR(Expect('('));
  std::vector<int> args;
  std::vector<DType> dtypes;
  for (int i = 0; i < info->arity; ++i) {
    if (i > 0) HYPER_RETURN_IF_ERROR(Expect(','));
    HYPER_ASSIGN_OR_RETURN(const int arg, Term(depth + 1));
    args.push_back(arg);
    dtypes.push_back(builder_.nodes()[static_cast<size_t>(arg)].dtype);
  }
  HYPER_RETURN_IF_ERROR(Expect(')'));
  if (bits && DTypeBytes(*cast_to) != DTypeBytes(dtypes[0])) {
    return Error("'bitcast' from " + std::string(DTypeName(dtypes[0])) + " to " +
                 std::string(DTypeName(*cast_to)) + " changes the width");
  }
  if (cast_to) return bits ? builder_.Bitcast(*cast_to, args[0]) : builder_.Cast(*cast_to, args[0]);
  const Result<DType> dtype = ResultDType(info->op, dtypes);
  if (!dtype.ok()) return Error(dtype.status().message());
  if (info->arity == 1) return builder_.Unary(info->op, args[0]);
  if (info->arity == 2) return builder_.Binary(info->op, args[0], args[1]);
  return builder_.Select(args[0], args[1], args[2]);
}

}  // namespace

std::string Expr::ToString() const {
  std::vector<int> uses(nodes_.size(), 0);
  for (const ExprNode& n : nodes_) {
    for (int32_t a : n.args) {
      if (a >= 0) ++uses[static_cast<size_t>(a)];
    }
  }
  std::string prefix;
  int temporaries = 0;
  std::vector<std::string> text(nodes_.size());
  std::vector<int> depth(nodes_.size(), 0);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const ExprNode& n = nodes_[i];
    const std::string dtype(DTypeName(n.dtype));
    if (n.op == ScalarOp::kInput) {
      text[i] = "x" + std::to_string(n.input);
      continue;
    }
    if (n.op == ScalarOp::kConstant) {
      text[i] =
          dtype + "(" +
          (IsFloat(n.dtype) ? FloatText(n.dtype, n.float_value) : IntText(n.dtype, n.int_value)) +
          ")";
      continue;
    }
    text[i] = InfoOf(n.op).name;
    if (n.op == ScalarOp::kCast || n.op == ScalarOp::kBitcast) text[i] += "." + dtype;
    for (int k = 0; k < InfoOf(n.op).arity; ++k) {
      const auto a = static_cast<size_t>(n.args[static_cast<size_t>(k)]);
      text[i] += (k == 0 ? "(" : ", ") + text[a];
      depth[i] = std::max(depth[i], depth[a] + 1);
    }
    text[i] += ")";
    const bool is_root = i + 1 == nodes_.size();
    if (!is_root && (uses[i] > 1 || depth[i] >= kPrintDepth)) {
      const std::string name = "t" + std::to_string(temporaries++);
      prefix += name + " = " + text[i] + "; ";
      text[i] = name;
      depth[i] = 0;
    }
  }
  return nodes_.empty() ? "" : prefix + text.back();
}

Result<Expr> Expr::Parse(std::string_view text, std::span<const DType> input_dtypes) {
  return Parser(text, input_dtypes).Run();
}

}  // namespace hyper::ir

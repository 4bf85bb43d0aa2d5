#include "frontend/onnx/refusal.h"

#include <fmt/format.h>

#include "frontend/onnx/tensor_data.h"
#include "onnx/onnx_pb.h"

namespace hyper::onnx_frontend {
namespace {

struct ReasonRow {
  Refusal reason;
  std::string_view text;
};

constexpr ReasonRow kReasons[] = {
    {Refusal::kStrings, "strings are not supported"},
    {Refusal::kSequences, "sequences and optionals are not supported"},
    {Refusal::kElementTypes, "sub-byte, float8 and complex types are not supported"},
    {Refusal::kDataShapes, "shapes that depend on data are not supported"},
    {Refusal::kDataControlFlow, "control flow that depends on data is not supported"},
    {Refusal::kRandomness, "random operators without a reference are not supported"},
    {Refusal::kNotTraining, "this operator has no place in a training graph"},
    {Refusal::kUnknownOperator, "this operator is not supported"},
    {Refusal::kLimit, "this use of the operator is not supported"},
};

constexpr Refusal kOrder[] = {
    Refusal::kStrings,     Refusal::kSequences,       Refusal::kElementTypes,
    Refusal::kDataShapes,  Refusal::kDataControlFlow, Refusal::kRandomness,
    Refusal::kNotTraining, Refusal::kUnknownOperator, Refusal::kLimit};

struct OperatorRow {
  std::string_view op;
  Refusal reason;
  std::string_view detail;
};

constexpr std::string_view kCount = "the extent of the result is a number of values found";
constexpr std::string_view kText = "its operands are text";
constexpr std::string_view kList = "the sequence or optional does not vanish at compile time";
constexpr std::string_view kDraws = "ONNX fixes no generator for its values";

// Operators of the default domain.
constexpr OperatorRow kOperators[] = {
    {"RegexFullMatch", Refusal::kStrings, kText},
    {"StringConcat", Refusal::kStrings, kText},
    {"StringNormalizer", Refusal::kStrings, kText},
    {"StringSplit", Refusal::kStrings, kText},
    {"TfIdfVectorizer", Refusal::kNotTraining, "it counts words"},
    {"ConcatFromSequence", Refusal::kSequences, kList},
    {"Optional", Refusal::kSequences, kList},
    {"OptionalGetElement", Refusal::kSequences, kList},
    {"OptionalHasElement", Refusal::kSequences, kList},
    {"SequenceAt", Refusal::kSequences, kList},
    {"SequenceConstruct", Refusal::kSequences, kList},
    {"SequenceEmpty", Refusal::kSequences, kList},
    {"SequenceErase", Refusal::kSequences, kList},
    {"SequenceInsert", Refusal::kSequences, kList},
    {"SequenceLength", Refusal::kSequences, kList},
    {"SequenceMap", Refusal::kSequences, kList},
    {"SplitToSequence", Refusal::kSequences, kList},
    {"Compress", Refusal::kDataShapes, kCount},
    {"NonMaxSuppression", Refusal::kDataShapes, kCount},
    {"NonZero", Refusal::kDataShapes, kCount},
    {"Unique", Refusal::kDataShapes, kCount},
    {"Bernoulli", Refusal::kRandomness, kDraws},
    {"Multinomial", Refusal::kRandomness, kDraws},
    {"RandomNormal", Refusal::kRandomness, kDraws},
    {"RandomNormalLike", Refusal::kRandomness, kDraws},
    {"RandomUniform", Refusal::kRandomness, kDraws},
    {"RandomUniformLike", Refusal::kRandomness, kDraws},
    {"ImageDecoder", Refusal::kNotTraining, "it reads compressed images"},
};

}  // namespace

std::span<const Refusal> AllRefusals() { return kOrder; }

std::string_view RefusalText(Refusal reason) {
  for (const ReasonRow& row : kReasons) {
    if (row.reason == reason) return row.text;
  }
  return {};
}

std::string RefusalMessage(Refusal reason, std::string_view detail) {
  return detail.empty() ? std::string(RefusalText(reason))
                        : fmt::format("{}: {}", RefusalText(reason), detail);
}

Status RefusalStatus(Refusal reason, std::string_view detail) {
  return Unimplemented(RefusalMessage(reason, detail));
}

std::optional<Refusal> RefusalOf(std::string_view message) {
  for (const ReasonRow& row : kReasons) {
    if (message.find(row.text) != std::string_view::npos) return row.reason;
  }
  return std::nullopt;
}

Refusal RefusalOfElementType(int onnx_type) {
  return onnx_type == onnx::TensorProto::STRING ? Refusal::kStrings : Refusal::kElementTypes;
}

Status OperatorRefusal(std::string_view domain, std::string_view op) {
  if (domain == "ai.onnx.ml") {
    return RefusalStatus(Refusal::kNotTraining, "classical machine learning");
  }
  if (domain.empty()) {
    for (const OperatorRow& row : kOperators) {
      if (row.op == op) return RefusalStatus(row.reason, row.detail);
    }
  }
  return RefusalStatus(
      Refusal::kUnknownOperator,
      fmt::format("'{}'{}", op, domain.empty() ? "" : fmt::format(" of {}", domain)));
}

}  // namespace hyper::onnx_frontend

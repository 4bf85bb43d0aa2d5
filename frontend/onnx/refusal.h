// Why a right model is refused: a short closed list, so that documents and tests can count by
// reason. Every such message is "<text of the reason>: <what exactly>".
// Thread safety: pure functions.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hyper::onnx_frontend {

enum class Refusal {
  kStrings,
  kSequences,        // sequences, maps and optionals that do not vanish at compile time
  kElementTypes,     // sub-byte, float8 and complex types
  kDataShapes,       // shapes that depend on data
  kDataControlFlow,  // a trip count or condition that depends on data
  kRandomness,       // random operators without a reference to agree with
  kNotTraining,      // tree ensembles, image decoding: nothing a training graph holds
  kUnknownOperator,  // foreign domains and custom operators
  kLimit,            // an attribute or size beyond what an operator's importer takes
};

// In enum order.
std::span<const Refusal> AllRefusals();
// "shapes that depend on data are not supported"; different for every reason, none part of another.
std::string_view RefusalText(Refusal reason);
std::string RefusalMessage(Refusal reason, std::string_view detail);
// kUnimplemented with that message.
Status RefusalStatus(Refusal reason, std::string_view detail);
// The reason that a message (of a diagnostic or a status) gives; nullopt when it gives none, that
// is when the model is wrong.
std::optional<Refusal> RefusalOf(std::string_view message);

// The reason for an ONNX element type that the IR does not have.
Refusal RefusalOfElementType(int onnx_type);

// Why ONNX's operator `op` of `domain` ("" is the default one) is refused as a whole, when neither
// an importer nor a function body takes it. Unknown names are kUnknownOperator.
Status OperatorRefusal(std::string_view domain, std::string_view op);

}  // namespace hyper::onnx_frontend

// Text of one value -> typed JSON value, by a row of the settings table. Number syntax is ours, so
// that a strategy means the same under every YAML version. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "frontend/strategy/settings.h"

namespace hyper::strategy {

struct ScalarResult {
  std::optional<nlohmann::ordered_json> value;  // empty: refused, see message
  std::string message;  // completes "key ...": "is 'abc'; expected an integer, at least 1"
  std::string help;     // a replacement that would be accepted, or empty
};

// `quoted`: the text stood in quotes, so it is no number, truth value or size.
// kFloatPair, kStringList and kTensor parse one element; kNameOrSection its shorthand string.
ScalarResult ParseScalar(const Setting& setting, std::string_view text, bool quoted);

}  // namespace hyper::strategy

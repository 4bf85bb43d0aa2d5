#include "frontend/strategy/schema.h"

#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/strings.h"
#include "frontend/strategy/scalar.h"
#include "frontend/strategy/settings.h"

namespace hyper::strategy {
namespace {

using Json = nlohmann::ordered_json;

Json Bound(const Setting& setting, double value) {
  const bool whole = setting.type == ValueType::kInt || setting.type == ValueType::kBytes ||
                     value == std::floor(value);
  return whole ? Json(static_cast<int64_t>(value)) : Json(value);
}

void AddRange(const Setting& setting, Json* schema) {
  if (std::isfinite(setting.min)) {
    (*schema)[setting.min_excluded ? "exclusiveMinimum" : "minimum"] = Bound(setting, setting.min);
  }
  if (std::isfinite(setting.max)) {
    (*schema)[setting.max_excluded ? "exclusiveMaximum" : "maximum"] = Bound(setting, setting.max);
  }
}

Json SectionSchema(std::string_view table_path);

// Type and constraints of one value, without description.
Json ValueSchema(const Setting& setting) {
  Json schema = Json::object();
  switch (setting.type) {
    case ValueType::kSection: return SectionSchema(setting.path);
    case ValueType::kSectionOrList: {
      const Json section = SectionSchema(setting.path);
      schema["oneOf"] = {section, {{"type", "array"}, {"minItems", 1}, {"items", section}}};
      return schema;
    }
    case ValueType::kNamedMap: {
      const Setting* child = FindSetting(fmt::format("{}.*", setting.path));
      schema["type"] = "object";
      schema["patternProperties"] = {{"^x-", Json::object()}};
      schema["additionalProperties"] = ValueSchema(*child);
      schema["additionalProperties"]["description"] = child->description;
      return schema;
    }
    case ValueType::kNameOrSection:
      schema["oneOf"] = {{{"type", "string"}, {"minLength", 1}}, SectionSchema(setting.path)};
      return schema;
    case ValueType::kInt:
      schema["type"] = "integer";
      AddRange(setting, &schema);
      for (const std::string& choice : SplitChoices(setting.choices)) {
        schema["enum"].push_back(std::stoi(choice));
      }
      return schema;
    case ValueType::kFloat:
      schema["type"] = "number";
      AddRange(setting, &schema);
      return schema;
    case ValueType::kFraction: {
      Json number = {{"type", "number"}};
      AddRange(setting, &number);
      schema["oneOf"] = {number, {{"type", "string"}, {"pattern", "^[0-9][0-9.eE+-]*%$"}}};
      return schema;
    }
    case ValueType::kBool: return {{"type", "boolean"}};
    case ValueType::kString: return {{"type", "string"}, {"minLength", 1}};
    case ValueType::kEnum:
      schema["type"] = "string";
      schema["enum"] = SplitChoices(setting.choices);
      return schema;
    case ValueType::kBytes: {
      Json number = {{"type", "integer"}};
      AddRange(setting, &number);
      schema["oneOf"] = {
          number,
          {{"type", "string"}, {"pattern", "^[0-9][0-9.eE+-]* ?(B|KiB|MiB|GiB|TiB|kB|MB|GB|TB)$"}}};
      return schema;
    }
    case ValueType::kStringList: {
      const Json text = {{"type", "string"}, {"minLength", 1}};
      schema["oneOf"] = {text, {{"type", "array"}, {"minItems", 1}, {"items", text}}};
      return schema;
    }
    case ValueType::kNameGroups: {
      const Json text = {{"type", "string"}, {"minLength", 1}};
      const Json group = {{"type", "array"}, {"minItems", 2}, {"items", text}};
      return {{"type", "array"}, {"minItems", 1}, {"items", group}};
    }
    case ValueType::kFloatPair: {
      Json number = {{"type", "number"}};
      AddRange(setting, &number);
      schema = {{"type", "array"}, {"minItems", 2}, {"maxItems", 2}};
      schema["items"] = number;
      return schema;
    }
    case ValueType::kTensor:
      schema["oneOf"] = {{{"type", {"number", "boolean"}}},
                         {{"type", "string"}, {"pattern", "\\.npy$"}},
                         {{"$ref", "#/$defs/numbers"}}};
      return schema;
    case ValueType::kReserved:
      schema["oneOf"] = {{{"type", "object"}, {"maxProperties", 0}},
                         {{"type", "array"}, {"maxItems", 0}},
                         {{"const", "none"}}};
      return schema;
  }
  return schema;
}

// The default as a JSON value; null when there is none.
Json DefaultValue(const Setting& setting) {
  if (setting.default_text.empty()) return nullptr;
  if (setting.default_text == "{}") return Json::object();
  if (setting.type == ValueType::kFloatPair) return Json::parse(setting.default_text);
  if (setting.type == ValueType::kBytes) return std::string(setting.default_text);
  ScalarResult parsed = ParseScalar(setting, setting.default_text, false);
  HYPER_CHECK(parsed.value.has_value(), setting.path);
  return *std::move(parsed.value);
}

std::string Remarks(const Setting& setting) {
  std::string out;
  if (setting.only_for == kNoKind) {
    out += " Only without a kind.";
  } else if (!setting.only_for.empty()) {
    out += fmt::format(" Only for kind {}.", Join(SplitChoices(setting.only_for), ", "));
  }
  if (!setting.kind_default.empty()) {
    const size_t equals = setting.kind_default.find('=');
    out += fmt::format(" The default for {} is {}.", setting.kind_default.substr(0, equals),
                       setting.kind_default.substr(equals + 1));
  }
  if (!setting.later.empty()) {
    out +=
        fmt::format(" Not available in this version: {}.", Join(SplitChoices(setting.later), ", "));
  }
  if (setting.type == ValueType::kReserved) out += " Not available in this version.";
  return out;
}

Json SectionSchema(std::string_view table_path) {
  Json schema = {{"type", "object"}};
  Json required = Json::array();
  Json& properties = schema["properties"] = Json::object();
  for (const Setting* child : ChildSettings(table_path)) {
    Json property = {{"description", std::string(child->description) + Remarks(*child)}};
    property["x-hyper-phase"] = child->phase == Phase::kLaunch ? "launch" : "compile";
    const Json fallback = DefaultValue(*child);
    if (!fallback.is_null()) property["default"] = fallback;
    property.update(ValueSchema(*child));
    const std::string name(LeafName(child->path));
    if (child->required && child->only_for.empty()) required.push_back(name);
    properties[name] = std::move(property);
  }
  if (!required.empty()) schema["required"] = required;
  schema["patternProperties"] = {{"^x-", Json::object()}};
  schema["additionalProperties"] = false;
  return schema;
}

}  // namespace

std::string StrategySchemaJson() {
  Json schema = Json::object();
  schema["$schema"] = "https://json-schema.org/draft/2020-12/schema";
  schema["title"] = "Training strategy, version 1";
  schema["description"] =
      "Keys of phase 'compile' are fixed in the bundle; keys of phase 'launch' can be changed with "
      "hyperrun --set.";
  schema.update(SectionSchema(""));
  schema["$defs"]["numbers"] = {
      {"type", "array"},
      {"items", {{"oneOf", {{{"type", {"number", "boolean"}}}, {{"$ref", "#/$defs/numbers"}}}}}}};
  return schema.dump(2) + "\n";
}

std::string StrategyDocsMarkdown() {
  std::string out = "| key | value | default | phase | meaning |\n|---|---|---|---|---|\n";
  for (const Setting& setting : AllSettings()) {
    const std::string fallback = setting.default_text == "{}" || setting.default_text.empty()
                                     ? (setting.required ? "required" : "")
                                     : fmt::format("`{}`", setting.default_text);
    out += fmt::format("| `{}` | {} | {} | {} | {}{} |\n", setting.path, DescribeType(setting),
                       fallback, setting.phase == Phase::kLaunch ? "launch" : "compile",
                       setting.description, Remarks(setting));
  }
  return out;
}

}  // namespace hyper::strategy

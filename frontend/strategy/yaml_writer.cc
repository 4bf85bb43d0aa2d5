#include "frontend/strategy/yaml_writer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

namespace hyper::strategy {
namespace {

using Json = nlohmann::ordered_json;

bool IsPlainWord(std::string_view text) {
  // Words that some YAML version reads as something other than text.
  static constexpr std::array<std::string_view, 9> kReservedWords = {
      "true", "false", "yes", "no", "on", "off", "null", "y", "n"};
  if (text.empty() || std::isalpha(static_cast<unsigned char>(text[0])) == 0) return false;
  const bool word = std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '/' ||
           c == '-';
  });
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return word &&
         std::find(kReservedWords.begin(), kReservedWords.end(), lower) == kReservedWords.end();
}

std::string Scalar(const Json& json) {
  // JSON strings are YAML double-quoted strings.
  if (json.is_string() && IsPlainWord(json.get<std::string>())) return json.get<std::string>();
  return json.dump();
}

void WriteMap(const Json& json, size_t indent, std::string* out, bool first_inline) {
  bool skip_indent = first_inline;
  for (const auto& [name, value] : json.items()) {
    if (!skip_indent) out->append(indent, ' ');
    skip_indent = false;
    *out += Scalar(Json(name)) + ":";
    if (value.is_object() && !value.empty()) {
      *out += "\n";
      WriteMap(value, indent + 2, out, false);
    } else if (value.is_array() && !value.empty() && value[0].is_object()) {
      *out += "\n";
      for (const Json& item : value) {
        out->append(indent + 2, ' ');
        *out += "- ";
        WriteMap(item, indent + 4, out, true);
      }
    } else if (value.is_array()) {
      *out += " [";
      for (size_t i = 0; i < value.size(); ++i) {
        *out += (i > 0 ? ", " : "") + Scalar(value[i]);
      }
      *out += "]\n";
    } else {
      *out += " " + Scalar(value) + "\n";
    }
  }
}

}  // namespace

std::string WriteYaml(const Json& json) {
  std::string out;
  WriteMap(json, 0, &out, false);
  return out;
}

}  // namespace hyper::strategy

#include "frontend/strategy/yaml_writer.h"

#include "base/strings.h"

namespace hyper::strategy {
namespace {

using Json = nlohmann::ordered_json;

std::string Scalar(const Json& json) {
  return json.is_string() ? YamlScalar(json.get<std::string>()) : json.dump();
}

// A value or nested lists of them.
std::string Flow(const Json& json) {
  if (!json.is_array()) return Scalar(json);
  std::string out = "[";
  for (size_t i = 0; i < json.size(); ++i) out += (i > 0 ? ", " : "") + Flow(json[i]);
  return out + "]";
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
      *out += " " + Flow(value) + "\n";
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

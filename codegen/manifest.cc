#include "codegen/manifest.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/sha256.h"

namespace hyper::codegen {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormatName = "hyper-bundle";
constexpr std::string_view kSelf = "manifest_sha256";
constexpr int64_t kTextLimit = int64_t{1} << 30;

constexpr std::array<BundleFile, 9> kFiles = {{
    {kProgramFile, true, kTextLimit},
    {kKernelsFile, false, kTextLimit},
    {kKernelsSourceFile, false, kTextLimit},
    {kTensorsFile, true, int64_t{1} << 46},
    {kStrategyFile, true, kTextLimit},
    {kLaunchFile, true, kTextLimit},
    {kModuleFile, true, kTextLimit},
    {kPlanFile, true, kTextLimit},
    {kModelFile, true, kTextLimit},
}};

const BundleFile* FindBundleFile(std::string_view name) {
  const auto found =
      std::find_if(kFiles.begin(), kFiles.end(), [&](const auto& f) { return f.name == name; });
  return found == kFiles.end() ? nullptr : found;
}

// Hash of the manifest with the hash field empty.
std::string SelfHash(Json json) {
  json[std::string(kSelf)] = "";
  return Sha256Hex(json.dump(2, ' ', false, Json::error_handler_t::replace));
}

// Nesting of the text; hostile input must not drive a recursive printer off the stack.
int NestingDepth(std::string_view text) {
  int depth = 0;
  int deepest = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\') {
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && (c == '{' || c == '[')) {
      deepest = std::max(deepest, ++depth);
    } else if (!quoted && (c == '}' || c == ']')) {
      --depth;
    }
  }
  return deepest;
}

bool IsHash(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// Text for a message: hostile names may be long or hold control characters.
std::string Quoted(const std::string& name) {
  return Json(name.substr(0, 80)).dump(-1, ' ', true, Json::error_handler_t::replace);
}

class Parser {
 public:
  Parser(const Json& json, const std::string& path) : json_(json), path_(path) {}

  Result<Manifest> Run() {
    Manifest manifest;
    HYPER_ASSIGN_OR_RETURN(manifest.producer, Text("producer"));
    HYPER_ASSIGN_OR_RETURN(manifest.model_name, Text("model"));
    HYPER_ASSIGN_OR_RETURN(manifest.target, Text("target"));
    HYPER_ASSIGN_OR_RETURN(manifest.march, Text("march"));
    HYPER_ASSIGN_OR_RETURN(const int64_t ranks, Int(json_, "ranks_per_replica"));
    if (ranks != 1) {
      return Damaged(fmt::format("\"ranks_per_replica\" is {}, this version has 1", ranks));
    }
    manifest.ranks_per_replica = 1;
    const auto features = json_.find("cpu_features");
    if (features == json_.end() || !features->is_array()) {
      return Damaged("\"cpu_features\" is not a list");
    }
    for (const Json& feature : *features) {
      if (!feature.is_string()) return Damaged("\"cpu_features\" holds something not a text");
      manifest.cpu_features.push_back(feature.get<std::string>());
    }
    HYPER_RETURN_IF_ERROR(ParseFiles(manifest));
    return manifest;
  }

  Status Damaged(const std::string& what) const {
    return DataLoss(fmt::format("bundle '{}': manifest.json is damaged: {}", path_, what));
  }

 private:
  Result<std::string> Text(const char* key) const {
    const auto found = json_.find(key);
    if (found == json_.end() || !found->is_string()) {
      return Damaged(fmt::format("\"{}\" is not a text", key));
    }
    return found->get<std::string>();
  }

  Result<int64_t> Int(const Json& object, const char* key) const {
    const auto found = object.find(key);
    const bool fits = found != object.end() && found->is_number_integer() &&
                      (!found->is_number_unsigned() || found->get<uint64_t>() <= INT64_MAX);
    if (!fits) return Damaged(fmt::format("\"{}\" is not an integer", key));
    return found->get<int64_t>();
  }

  Status ParseFiles(Manifest& manifest) const {
    const auto files = json_.find("files");
    if (files == json_.end() || !files->is_object()) return Damaged("\"files\" is not an object");
    for (const auto& [name, entry] : files->items()) {
      const BundleFile* known = FindBundleFile(name);
      if (known == nullptr) {
        return Damaged(
            fmt::format("it names the file {}, which this format does not have", Quoted(name)));
      }
      if (!entry.is_object()) return Damaged(fmt::format("the entry of '{}' is wrong", name));
      HYPER_ASSIGN_OR_RETURN(const int64_t bytes, Int(entry, "bytes"));
      if (bytes < 0 || bytes > known->max_bytes) {
        return Damaged(fmt::format("'{}' is said to have {} bytes, accepted are 0 to {}", name,
                                   bytes, known->max_bytes));
      }
      const auto hash = entry.find("sha256");
      if (hash == entry.end() || !hash->is_string() || !IsHash(hash->get<std::string>())) {
        return Damaged(fmt::format("'{}' has no SHA-256", name));
      }
      manifest.sizes[name] = bytes;
      manifest.checksums[name] = hash->get<std::string>();
    }
    for (const BundleFile& file : kFiles) {
      if (file.required && !manifest.checksums.contains(std::string(file.name))) {
        return Damaged(fmt::format("it does not name '{}'", file.name));
      }
    }
    return Status::Ok();
  }

  const Json& json_;
  const std::string& path_;
};

}  // namespace

std::span<const BundleFile> BundleFiles() { return kFiles; }

std::string PrintManifest(const Manifest& manifest) {
  Json json;
  json["format"] = kFormatName;
  json["format_version"] = manifest.format_version;
  json["producer"] = manifest.producer;
  json["model"] = manifest.model_name;
  json["target"] = manifest.target;
  json["march"] = manifest.march;
  json["cpu_features"] = Json::array();
  for (const std::string& feature : manifest.cpu_features) {
    json["cpu_features"].push_back(feature);
  }
  json["ranks_per_replica"] = manifest.ranks_per_replica;
  json["files"] = Json::object();
  for (const auto& [name, hash] : manifest.checksums) {
    json["files"][name] = {{"bytes", manifest.sizes.at(name)}, {"sha256", hash}};
  }
  json[std::string(kSelf)] = "";
  json[std::string(kSelf)] = SelfHash(json);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Manifest> ParseManifest(std::string_view text, const std::string& path) {
  constexpr int kMaxDepth = 8;
  const Json json = NestingDepth(text) > kMaxDepth
                        ? Json(Json::value_t::discarded)
                        : Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const Parser parser(json, path);
  if (json.is_discarded()) return parser.Damaged("it is not JSON");
  const auto format = json.is_object() ? json.find("format") : json.end();
  if (!json.is_object() || format == json.end() || *format != kFormatName) {
    return InvalidArgument(fmt::format(
        "'{}' is not a bundle: its manifest.json lacks \"format\": \"{}\"", path, kFormatName));
  }
  const auto version = json.find("format_version");
  if (version == json.end() || !version->is_number_integer()) {
    return parser.Damaged("\"format_version\" is not an integer");
  }
  if (*version != kBundleFormatVersion) {
    const auto producer = json.find("producer");
    return FailedPrecondition(fmt::format(
        "bundle '{}' has format version {} (written by {}), this program reads version {}: "
        "compile the model again or use the matching hyperrun",
        path, version->dump(),
        producer != json.end() && producer->is_string() ? Quoted(producer->get<std::string>())
                                                        : "an unknown version",
        kBundleFormatVersion));
  }
  const auto self = json.find(std::string(kSelf));
  const std::string actual = SelfHash(json);
  if (self == json.end() || *self != actual) {
    return parser.Damaged(fmt::format(
        "its SHA-256 begins with {}, expected {}", actual.substr(0, 12),
        self != json.end() && self->is_string() ? Quoted(self->get<std::string>().substr(0, 12))
                                                : "one under \"manifest_sha256\""));
  }
  return Parser(json, path).Run();
}

}  // namespace hyper::codegen

#include "frontend/strategy/check.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/strings.h"
#include "frontend/strategy/scalar.h"
#include "frontend/strategy/settings.h"

namespace hyper::strategy {
namespace {

using Json = nlohmann::ordered_json;
using Kind = ConfigNode::Kind;

std::string_view KindName(Kind kind) {
  switch (kind) {
    case Kind::kNull: return "empty";
    case Kind::kScalar: return "a single value";
    case Kind::kList: return "a list";
    case Kind::kMap: return "a map";
  }
  return "unknown";
}

bool IsNote(const ConfigNode& key) {
  return key.kind == Kind::kScalar && key.text.starts_with("x-");
}

class Checker {
 public:
  Checker(Scope scope, const std::string& file, Diagnostics* diagnostics, LocationMap* locations,
          std::set<std::string>* unknown)
      : scope_(scope),
        file_(file),
        diagnostics_(diagnostics),
        locations_(locations),
        unknown_(unknown) {}

  // `key` is the node that errors about the section as a whole point at.
  Json Section(const ConfigNode& node, const std::string& table_path, const std::string& path,
               const ConfigNode& key);

 private:
  Json Value(const Setting& setting, const ConfigNode& node, const std::string& path,
             const ConfigNode& key);
  Json NamedMap(const Setting& setting, const ConfigNode& node, const std::string& path,
                const ConfigNode& key);
  Json List(const Setting& setting, const ConfigNode& node, const std::string& path,
            const ConfigNode& key);
  Json Groups(const Setting& setting, const ConfigNode& node, const std::string& path);
  Json Scalar(const Setting& setting, const ConfigNode& node, const std::string& path);
  // What the elements of a tensor have shown of its shape so far.
  struct TensorShape {
    std::vector<size_t> extents;
    std::optional<size_t> rank;  // known at the first element
    std::optional<bool> truth_values;
  };
  Json Tensor(const Setting& setting, const ConfigNode& node, const std::string& path, size_t depth,
              TensorShape* shape);
  // Keys of `node` that are usable; reports odd and duplicate ones. Notes (x-...) are left out.
  std::vector<size_t> UsableKeys(const ConfigNode& node, const std::string& path);
  void CheckApplicable(const ConfigNode& node, const std::vector<size_t>& usable,
                       const std::string& table_path, const std::string& path,
                       const std::string& kind);
  void FillMissing(const std::string& table_path, const std::string& path, const std::string& kind,
                   const ConfigNode& key, const std::set<std::string>& meant, Json* out);
  // Returns the keys that were probably meant.
  std::vector<std::string> UnknownKey(const ConfigNode& key, const std::string& table_path,
                                      const std::string& path);

  bool InScope(const Setting& setting) const {
    return scope_ == Scope::kStrategy || InLaunchConfig(setting);
  }
  SourceLocation At(const ConfigNode& node) const { return {file_, node.line, node.column}; }
  void Error(const ConfigNode& node, std::string message, std::string help = {}) {
    diagnostics_->Error(At(node), std::move(message), std::move(help));
  }
  void RememberUnknown(const std::string& path) {
    if (unknown_ != nullptr) unknown_->insert(path);
  }
  void Remember(const std::string& path, const ConfigNode& node) {
    if (locations_ != nullptr && node.line > 0) locations_->emplace(path, At(node));
  }

  Scope scope_;
  std::string file_;
  Diagnostics* diagnostics_;
  LocationMap* locations_;
  std::set<std::string>* unknown_;
};

std::vector<size_t> Checker::UsableKeys(const ConfigNode& node, const std::string& path) {
  std::vector<size_t> usable;
  std::map<std::string_view, size_t> first;
  for (size_t i = 0; i < node.keys.size(); ++i) {
    const ConfigNode& key = node.keys[i];
    if (IsNote(key)) continue;
    if (key.kind != Kind::kScalar || key.text.empty()) {
      Error(key, fmt::format("a key {} must be a name, not {}",
                             path.empty() ? "of the strategy" : fmt::format("of '{}'", path),
                             key.kind == Kind::kScalar ? "empty text" : KindName(key.kind)));
      RememberUnknown(path);
      continue;
    }
    if (key.text == "<<" && !key.quoted) {
      Error(key, "merge keys ('<<') are not supported", "repeat the keys, or use an alias");
      RememberUnknown(path);
      continue;
    }
    const auto [before, fresh] = first.emplace(key.text, i);
    if (!fresh) {
      const int line = node.keys[before->second].line;
      Error(key,
            fmt::format("key '{}' is given twice: on line {} and on line {}",
                        ChildPath(path, key.text), line, key.line),
            "keep one of the two");
      continue;
    }
    usable.push_back(i);
  }
  return usable;
}

std::vector<std::string> Checker::UnknownKey(const ConfigNode& key, const std::string& table_path,
                                             const std::string& path) {
  std::vector<std::string> siblings;
  for (const Setting* child : ChildSettings(table_path)) {
    if (InScope(*child)) siblings.emplace_back(LeafName(child->path));
  }
  std::string help = DidYouMean(key.text, siblings);
  std::vector<std::string> meant = NearestNames(key.text, siblings);
  if (help.empty()) {
    std::vector<std::string> places;
    for (const Setting& setting : AllSettings()) {
      if (LeafName(setting.path) == key.text && InScope(setting)) {
        places.push_back(fmt::format("'{}'", setting.path));
      }
    }
    help = places.empty() ? fmt::format("known keys here: {}", Join(siblings, ", "))
                          : fmt::format("there is {}", Join(places, ", "));
  }
  Error(key,
        path.empty() ? fmt::format("unknown key '{}'", key.text)
                     : fmt::format("unknown key '{}' in '{}'", key.text, path),
        std::move(help));
  return meant;
}

void Checker::CheckApplicable(const ConfigNode& node, const std::vector<size_t>& usable,
                              const std::string& table_path, const std::string& path,
                              const std::string& kind) {
  if (kind.empty()) return;
  std::vector<std::string> taken;
  for (const Setting* child : ChildSettings(table_path)) {
    if (!child->only_for.empty() && !HasChoice(child->only_for, kind)) continue;
    if (LeafName(child->path) != "kind") taken.emplace_back(LeafName(child->path));
  }
  for (const size_t i : usable) {
    const Setting* child = FindSetting(ChildPath(table_path, node.keys[i].text));
    if (child == nullptr || child->only_for.empty() || HasChoice(child->only_for, kind)) continue;
    Error(node.keys[i],
          fmt::format("'{}' does not apply to kind {}", ChildPath(path, node.keys[i].text), kind),
          fmt::format("{} takes {}", kind, Join(taken, ", ")));
  }
}

void Checker::FillMissing(const std::string& table_path, const std::string& path,
                          const std::string& kind, const ConfigNode& key,
                          const std::set<std::string>& meant, Json* out) {
  for (const Setting* child : ChildSettings(table_path)) {
    const std::string name(LeafName(child->path));
    if (out->contains(name) || !InScope(*child)) continue;
    if (!child->only_for.empty() && !HasChoice(child->only_for, kind)) continue;
    if (child->required && meant.contains(name)) {
      (*out)[name] = nullptr;  // a misspelled key was reported
      continue;
    }
    if (child->required) {
      Error(key, fmt::format("'{}' is missing; expected {}", ChildPath(path, name),
                             DescribeType(*child)));
      (*out)[name] = nullptr;
      continue;
    }
    const std::string_view text = DefaultFor(*child, kind);
    if (text.empty()) continue;
    ConfigNode node;
    if (text == "{}") {
      node.kind = Kind::kMap;
    } else if (child->type == ValueType::kFloatPair) {
      node.kind = Kind::kList;
      const size_t comma = text.find(',');
      node.items.resize(2);
      for (ConfigNode& item : node.items) item.kind = Kind::kScalar;
      node.items[0].text = text.substr(1, comma - 1);
      node.items[1].text = text.substr(comma + 2, text.size() - comma - 3);
    } else {
      node.kind = Kind::kScalar;
      node.text = text;
    }
    (*out)[name] = Value(*child, node, ChildPath(path, name), key);
  }
}

Json Checker::Section(const ConfigNode& node, const std::string& table_path,
                      const std::string& path, const ConfigNode& key) {
  // A section without content is an empty one; a whole document is not.
  if (node.kind != Kind::kMap && (node.kind != Kind::kNull || path.empty())) {
    Error(node, path.empty()
                    ? "a strategy is a map of keys, such as 'version: 1'"
                    : fmt::format("'{}' is {}; expected a map of keys", path, KindName(node.kind)));
    return nullptr;
  }
  Json out = Json::object();
  const std::vector<size_t> usable = UsableKeys(node, path);
  std::set<std::string> meant;
  for (const size_t i : usable) {
    const std::string& name = node.keys[i].text;
    const Setting* child = FindSetting(ChildPath(table_path, name));
    if (child == nullptr || !InScope(*child)) {
      for (std::string& key_meant : UnknownKey(node.keys[i], table_path, path)) {
        meant.insert(std::move(key_meant));
      }
      RememberUnknown(path);
      continue;
    }
    out[name] = Value(*child, node.items[i], ChildPath(path, name), node.keys[i]);
  }
  const Setting* kind_row = FindSetting(ChildPath(table_path, "kind"));
  std::string kind;
  bool kind_refused = false;
  if (kind_row != nullptr) {
    // A misspelled kind was reported: what it takes is unknown.
    if (meant.contains("kind") && !out.contains("kind")) out["kind"] = nullptr;
    const auto given = out.find("kind");
    kind_refused = given != out.end() && given->is_null();
    if (given == out.end()) {
      kind = kind_row->default_text;
    } else if (given->is_string()) {
      kind = given->get<std::string>();
    }
  }
  CheckApplicable(node, usable, table_path, path, kind);
  if (!kind_refused) FillMissing(table_path, path, kind, key, meant, &out);
  return out;
}

Json Checker::NamedMap(const Setting& setting, const ConfigNode& node, const std::string& path,
                       const ConfigNode& key) {
  if (node.kind != Kind::kMap) {
    Error(node.kind == Kind::kNull ? key : node,
          fmt::format("'{}' is {}; expected a map of names", path, KindName(node.kind)));
    return nullptr;
  }
  const Setting* child = FindSetting(fmt::format("{}.*", setting.path));
  HYPER_CHECK(child != nullptr, setting.path);
  Json out = Json::object();
  for (const size_t i : UsableKeys(node, path)) {
    const std::string& name = node.keys[i].text;
    out[name] = Value(*child, node.items[i], ChildPath(path, name), node.keys[i]);
  }
  return out;
}

Json Checker::List(const Setting& setting, const ConfigNode& node, const std::string& path,
                   const ConfigNode& key) {
  const bool pair = setting.type == ValueType::kFloatPair;
  if (pair && node.items.size() != 2) {
    Error(node, fmt::format("'{}' has {} values; expected {}", path, node.items.size(),
                            DescribeType(setting)));
    return nullptr;
  }
  if (node.items.empty()) {
    Error(node, fmt::format("'{}' is an empty list", path), "remove the key");
    return nullptr;
  }
  Json out = Json::array();
  for (size_t i = 0; i < node.items.size(); ++i) {
    const std::string item_path = fmt::format("{}[{}]", path, i);
    const ConfigNode& item = node.items[i];
    if (setting.type == ValueType::kSectionOrList) {
      Remember(item_path, item);
      out.push_back(
          Section(item, std::string(setting.path), item_path, item.line > 0 ? item : key));
    } else {
      Remember(item_path, item);
      out.push_back(Scalar(setting, item, item_path));
    }
  }
  return out;
}

// No name may occur twice, in one group or in two.
Json Checker::Groups(const Setting& setting, const ConfigNode& node, const std::string& path) {
  const std::string expected = DescribeType(setting);
  if (node.kind != Kind::kList || node.items.empty()) {
    Error(node,
          fmt::format("'{}' is {}; expected {}", path,
                      node.kind == Kind::kList ? "an empty list" : KindName(node.kind), expected));
    return nullptr;
  }
  Json out = Json::array();
  std::map<std::string, std::string> first;  // name -> where it stands
  for (size_t i = 0; i < node.items.size(); ++i) {
    const ConfigNode& group = node.items[i];
    const std::string group_path = fmt::format("{}[{}]", path, i);
    Remember(group_path, group);
    if (group.kind != Kind::kList || group.items.size() < 2) {
      Error(group,
            fmt::format("'{}' is {}; expected {}", group_path,
                        group.kind == Kind::kList ? fmt::format("a list of {}", group.items.size())
                                                  : std::string(KindName(group.kind)),
                        expected),
            group.kind == Kind::kScalar ? "write one list per group: [[a, b], [c, d]]" : "");
      return nullptr;
    }
    Json names = Json::array();
    for (size_t k = 0; k < group.items.size(); ++k) {
      const std::string item_path = fmt::format("{}[{}]", group_path, k);
      Remember(item_path, group.items[k]);
      Json name = Scalar(setting, group.items[k], item_path);
      if (name.is_null()) return nullptr;
      const auto [before, fresh] = first.emplace(name.get<std::string>(), item_path);
      if (!fresh) {
        Error(group.items[k],
              fmt::format("'{}' is '{}', which '{}' names already", item_path, before->first,
                          before->second),
              "name every parameter once; a group may have more than two names");
        return nullptr;
      }
      names.push_back(std::move(name));
    }
    out.push_back(std::move(names));
  }
  return out;
}

Json Checker::Scalar(const Setting& setting, const ConfigNode& node, const std::string& path) {
  if (node.kind != Kind::kScalar) {
    Error(node,
          fmt::format("'{}' is {}; expected {}", path, KindName(node.kind), DescribeType(setting)));
    return nullptr;
  }
  ScalarResult parsed = ParseScalar(setting, node.text, node.quoted);
  if (!parsed.value) {
    Error(node, fmt::format("'{}' {}", path, parsed.message), std::move(parsed.help));
    return nullptr;
  }
  return *std::move(parsed.value);
}

// Lists of one depth must be equally long; the first refused part refuses the whole.
Json Checker::Tensor(const Setting& setting, const ConfigNode& node, const std::string& path,
                     size_t depth, TensorShape* shape) {
  if (node.kind != Kind::kList) {
    if (depth == 0 && node.kind == Kind::kScalar && node.text.ends_with(".npy")) return node.text;
    Json element = Scalar(setting, node, path);
    if (element.is_null()) return element;
    if (shape->extents.size() != depth || shape->rank.value_or(depth) != depth) {
      Error(node,
            fmt::format("'{}' is a single value beside lists; expected equally deep lists", path));
      return nullptr;
    }
    shape->rank = depth;
    if (shape->truth_values.value_or(element.is_boolean()) != element.is_boolean()) {
      Error(node, fmt::format("'{}' is {}, others are {}; expected numbers or truth values alone",
                              path, element.is_boolean() ? "a truth value" : "a number",
                              element.is_boolean() ? "numbers" : "truth values"));
      return nullptr;
    }
    shape->truth_values = element.is_boolean();
    return element;
  }
  if (shape->rank.value_or(depth + 1) <= depth) {
    Error(node,
          fmt::format("'{}' is a list beside single values; expected equally deep lists", path));
    return nullptr;
  }
  if (depth == shape->extents.size()) shape->extents.push_back(node.items.size());
  if (shape->extents[depth] != node.items.size()) {
    Error(node,
          fmt::format("'{}' is a list of {}, the one before it of {}; expected equally long ones",
                      path, node.items.size(), shape->extents[depth]));
    return nullptr;
  }
  Json out = Json::array();
  for (size_t i = 0; i < node.items.size(); ++i) {
    out.push_back(Tensor(setting, node.items[i], fmt::format("{}[{}]", path, i), depth + 1, shape));
    if (out.back().is_null()) return nullptr;
  }
  return out;
}

Json Checker::Value(const Setting& setting, const ConfigNode& node, const std::string& path,
                    const ConfigNode& key) {
  const bool container = node.kind == Kind::kMap || node.kind == Kind::kList;
  Remember(path, container ? key : node);
  switch (setting.type) {
    case ValueType::kSection: return Section(node, std::string(setting.path), path, key);
    case ValueType::kNamedMap: return NamedMap(setting, node, path, key);
    case ValueType::kSectionOrList:
      if (node.kind == Kind::kList) return List(setting, node, path, key);
      return Section(node, std::string(setting.path), path, key);
    case ValueType::kNameOrSection:
      if (node.kind == Kind::kMap) return Section(node, std::string(setting.path), path, key);
      break;
    case ValueType::kFloatPair:
    case ValueType::kStringList:
      if (node.kind == Kind::kList) return List(setting, node, path, key);
      if (node.kind == Kind::kScalar && setting.type == ValueType::kStringList) {
        Json one = Scalar(setting, node, path);
        return one.is_null() ? one : Json::array({std::move(one)});
      }
      break;
    case ValueType::kNameGroups:
      if (node.kind == Kind::kNull) break;
      return Groups(setting, node, path);
    case ValueType::kTensor: {
      if (node.kind == Kind::kNull) break;
      TensorShape shape;
      return Tensor(setting, node, path, 0, &shape);
    }
    case ValueType::kReserved: {
      const bool none = node.kind == Kind::kScalar && node.text == "none";
      if (node.kind == Kind::kNull || none || (container && node.items.empty())) {
        return Json::object();
      }
      Error(key, fmt::format("'{}' is not available in this version; only 'none' works", path),
            fmt::format("remove '{}'", path));
      return nullptr;
    }
    default: break;
  }
  if (node.kind == Kind::kNull) {
    Error(key, fmt::format("'{}' has no value; expected {}", path, DescribeType(setting)));
    return nullptr;
  }
  if (setting.type == ValueType::kFloatPair) {
    Error(node,
          fmt::format("'{}' is {}; expected {}", path, KindName(node.kind), DescribeType(setting)));
    return nullptr;
  }
  return Scalar(setting, node, path);
}

ConfigNode FromJsonValue(const Json& json, int depth) {
  ConfigNode node;
  if (json.is_object() && depth < kMaxDepth) {
    node.kind = Kind::kMap;
    for (const auto& [name, value] : json.items()) {
      ConfigNode key;
      key.kind = Kind::kScalar;
      key.text = name;
      key.quoted = true;
      node.keys.push_back(std::move(key));
      node.items.push_back(FromJsonValue(value, depth + 1));
    }
  } else if (json.is_array() && depth < kMaxDepth) {
    node.kind = Kind::kList;
    for (const Json& item : json) node.items.push_back(FromJsonValue(item, depth + 1));
  } else if (json.is_string()) {
    node.kind = Kind::kScalar;
    node.quoted = true;
    node.text = json.get<std::string>();
  } else if (json.is_number() || json.is_boolean()) {
    node.kind = Kind::kScalar;
    node.text = json.dump();
  }
  return node;
}

}  // namespace

Json CheckTree(const ConfigNode& root, Scope scope, const std::string& file,
               Diagnostics* diagnostics, LocationMap* locations, std::set<std::string>* unknown) {
  Checker checker(scope, file, diagnostics, locations, unknown);
  return checker.Section(root, "", "", root);
}

SourceLocation FindLocation(const LocationMap& locations, const std::string& file,
                            std::string_view path) {
  while (!path.empty()) {
    const auto found = locations.find(std::string(path));
    if (found != locations.end()) return found->second;
    const size_t cut = path.find_last_of(".[");
    if (cut == std::string_view::npos) break;
    path = path.substr(0, cut);
  }
  return {file, 0, 0};
}

Result<ConfigNode> ReadJsonTree(std::string_view json) {
  Json parsed = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) return InvalidArgument("not valid JSON");
  return FromJsonValue(parsed, 0);
}

}  // namespace hyper::strategy

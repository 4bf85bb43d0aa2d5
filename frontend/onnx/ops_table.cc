#include "frontend/onnx/ops_table.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/strings.h"
#include "frontend/onnx/importer.h"
#include "onnx/defs/schema.h"

namespace hyper::onnx_frontend {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kOldestOpset = 7;  // that models may have

struct Row {
  std::string domain;
  std::string op;
  int first_opset = 0;  // of the domain; 0 to 0: the domain has no versions here
  int last_opset = 0;
  int oldest = 0;  // since-versions
  int newest = 0;
  std::string by;
  std::string reason;  // why no gradient passes; empty: one does
  std::string doc;

  std::string Name() const { return domain.empty() ? op : domain + "::" + op; }
  std::string Gradient() const {
    if (by == "function") return "as its body";
    return reason.empty() ? "yes" : "none: " + reason;
  }
  std::string Opsets() const {
    if (last_opset == 0) return "any";
    return first_opset == last_opset ? fmt::format("{}", first_opset)
                                     : fmt::format("{}-{}", first_opset, last_opset);
  }
};

int NewestOpset(const std::string& domain) {
  const auto& map = onnx::OpSchemaRegistry::DomainToVersionRange::Instance().Map();
  const auto found = map.find(domain);
  return found == map.end() ? 0 : found->second.second;
}

const onnx::OpSchema* SchemaAt(const std::string& domain, const std::string& op, int opset) {
  return onnx::OpSchemaRegistry::Instance()->GetSchema(op, opset, domain);
}

// Fills in the opsets in which `takes` holds for the schema of the op, and their since-versions.
template <typename Takes>
void FillOpsets(Row* row, const Takes& takes) {
  const int newest = NewestOpset(row->domain);
  for (int opset = row->domain.empty() ? kOldestOpset : 1; opset <= newest; ++opset) {
    const onnx::OpSchema* schema = SchemaAt(row->domain, row->op, opset);
    if (schema == nullptr || schema->deprecated() || !takes(*schema)) continue;
    if (row->last_opset == 0) {
      row->first_opset = opset;
      row->oldest = schema->SinceVersion();
    }
    row->last_opset = opset;
    row->newest = schema->SinceVersion();
  }
}

Row ImporterRow(const ImportTarget& target) {
  Row row;
  row.domain = std::string(target.domain);
  row.op = std::string(target.op);
  row.by = "importer";
  row.reason = std::string(target.no_gradient);
  row.doc = std::string(target.doc);
  FillOpsets(&row, [&](const onnx::OpSchema& schema) {
    return schema.SinceVersion() >= target.oldest && schema.SinceVersion() <= target.newest;
  });
  if (row.last_opset == 0) {
    row.oldest = target.oldest;
    row.newest = target.newest;
  }
  return row;
}

// Whether all nodes of the op's body have an importer or such a body. Bodies that depend on a
// node's attributes and types are judged there.
class BodyJudge {
 public:
  explicit BodyJudge(int opset) : opset_(opset) {}

  bool Works(const std::string& op) {
    const auto known = known_.find(op);
    if (known != known_.end()) return known->second;
    known_[op] = false;  // a body that calls itself does not
    const bool works = Judge(op);
    known_[op] = works;
    return works;
  }

 private:
  bool Judge(const std::string& op) {
    const onnx::OpSchema* schema = SchemaAt("", op, opset_);
    if (schema == nullptr) return false;
    const ImportTarget* target = ImportTargets().Find("", op);
    if (target != nullptr && schema->SinceVersion() >= target->oldest &&
        schema->SinceVersion() <= target->newest) {
      return true;
    }
    if (!schema->HasFunction()) return schema->HasContextDependentFunction();
    const onnx::FunctionProto* body = schema->GetFunction(opset_);
    if (body == nullptr) return false;
    return std::all_of(body->node().begin(), body->node().end(), [&](const onnx::NodeProto& node) {
      return node.domain().empty() && Works(node.op_type());
    });
  }

  int opset_;
  std::map<std::string, bool> known_;
};

std::vector<Row> Rows() {
  std::vector<Row> rows;
  std::set<std::string> done;
  for (const ImportTarget& target : ImportTargets().targets()) {
    rows.push_back(ImporterRow(target));
    if (target.domain.empty()) done.insert(std::string(target.op));
  }
  const int newest = NewestOpset("");
  BodyJudge judge(newest);
  for (const onnx::OpSchema& schema : onnx::OpSchemaRegistry::get_all_schemas()) {
    if (!schema.domain().empty() || done.contains(schema.Name()) || schema.deprecated()) continue;
    if (!judge.Works(schema.Name())) continue;
    Row row;
    row.op = schema.Name();
    row.by = "function";
    row.doc = schema.HasFunction() ? "ONNX's own body of the operator"
                                   : "ONNX's own body, made for the node's attributes and types";
    FillOpsets(&row, [](const onnx::OpSchema& at) {
      return at.HasFunction() || at.HasContextDependentFunction();
    });
    if (row.last_opset > 0) rows.push_back(std::move(row));
  }
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return std::pair(a.domain, a.op) < std::pair(b.domain, b.op);
  });
  return rows;
}

// How the op is read in the version of `schema`; empty: it is not.
std::string ByOf(const onnx::OpSchema& schema, const ImportTarget* target, int opset) {
  const int since = schema.SinceVersion();
  if (target != nullptr && since >= target->oldest && since <= target->newest) return "importer";
  if (schema.HasFunction() || schema.HasContextDependentFunction()) {
    return BodyJudge(opset).Works(schema.Name()) ? "function" : "";
  }
  return {};
}

}  // namespace

std::vector<OnnxOpVersion> OnnxOpVersions() {
  std::map<std::tuple<std::string, std::string, int>, OnnxOpVersion> versions;
  for (const onnx::OpSchema& schema : onnx::OpSchemaRegistry::get_all_schemas_with_history()) {
    // The version that a domain's first readable opset has, and all later ones.
    const bool ai = schema.domain().empty();
    const int newest = NewestOpset(schema.domain());
    const int opset = std::max(schema.SinceVersion(), ai ? kOldestOpset : 1);
    const onnx::OpSchema* at = SchemaAt(schema.domain(), schema.Name(), opset);
    if (at == nullptr || at->SinceVersion() != schema.SinceVersion() || schema.deprecated() ||
        opset > newest) {
      continue;
    }
    const ImportTarget* target = ImportTargets().Find(schema.domain(), schema.Name());
    OnnxOpVersion version{schema.domain(), schema.Name(), schema.SinceVersion(), {}, {}, {}};
    version.by = ByOf(schema, target, opset);
    if (version.by == "importer") {
      version.gradient =
          target->no_gradient.empty() ? "yes" : fmt::format("none: {}", target->no_gradient);
      version.doc = std::string(target->doc);
    } else if (version.by == "function") {
      version.gradient = "as its body";
      version.doc = "ONNX's own body of the operator";
    }
    versions[{version.domain, version.op, version.since}] = version;
  }
  // Domains that the ONNX library has no schemas of.
  for (const ImportTarget& target : ImportTargets().targets()) {
    if (NewestOpset(std::string(target.domain)) > 0 &&
        SchemaAt(std::string(target.domain), std::string(target.op),
                 NewestOpset(std::string(target.domain))) != nullptr) {
      continue;
    }
    const std::tuple<std::string, std::string, int> key(target.domain, target.op, target.oldest);
    if (versions.contains(key)) continue;
    versions[key] = {
        std::string(target.domain),
        std::string(target.op),
        target.oldest,
        "importer",
        target.no_gradient.empty() ? "yes" : fmt::format("none: {}", target.no_gradient),
        std::string(target.doc)};
  }
  std::vector<OnnxOpVersion> list;
  for (auto& [key, version] : versions) list.push_back(std::move(version));
  return list;
}

std::string OnnxOpsText() {
  const std::vector<Row> rows = Rows();
  std::string out = fmt::format("{:<42} {:<8} {:<9} {}\n", "operator", "opsets", "by", "gradient");
  for (const Row& row : rows) {
    const std::string gradient = row.Gradient();
    out += fmt::format("{:<42} {:<8} {:<9} ", row.Name(), row.Opsets(), row.by);
    const size_t room = 100 - 62;
    out += (gradient.size() <= room ? gradient : gradient.substr(0, room - 2) + "..") + "\n";
  }
  out += fmt::format("\n{} operators, models of opsets {} to {}\n", rows.size(), kOldestOpset,
                     NewestOpset(""));
  return out;
}

std::string OnnxOpsJson() {
  Json json;
  json["newest_opset"] = NewestOpset("");
  Json& list = json["operators"] = Json::array();
  for (const Row& row : Rows()) {
    list.push_back(
        {{"domain", row.domain},
         {"op", row.op},
         {"opsets", row.last_opset == 0 ? Json(nullptr) : Json{row.first_opset, row.last_opset}},
         {"since_versions", {row.oldest, row.newest}},
         {"by", row.by},
         {"gradient", row.by == "function" ? Json(nullptr) : Json(row.reason.empty())},
         {"reason", row.reason},
         {"doc", row.doc}});
  }
  return json.dump(2) + "\n";
}

}  // namespace hyper::onnx_frontend

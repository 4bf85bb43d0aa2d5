#include "frontend/onnx/ops_table.h"

#include <algorithm>
#include <map>
#include <set>
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

std::string Cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) {
    text.replace(at, 1, "\\|");
  }
  return text;
}

}  // namespace

std::string OnnxOpsMarkdown() {
  std::string out = fmt::format(
      "# ONNX operators\n\n"
      "Written from the importer records (`hyperc ops --onnx`). Models may have opsets {} to {}; "
      "the\ncolumn says in which of them the operator works. `by`: an importer of its own, the "
      "body that\nthe ONNX library gives for the operator (`function`), or the branch that is "
      "taken "
      "(`branch`).\nWhat single attributes or types are refused is said where a model is read "
      "(`hyperc inspect`).\nFunctions of the model itself are inlined.\n\n"
      "| operator | opsets | by | gradient | becomes |\n|---|---|---|---|---|\n",
      kOldestOpset, NewestOpset(""));
  for (const Row& row : Rows()) {
    out += fmt::format("| `{}` | {} | {} | {} | {} |\n", row.Name(), row.Opsets(), row.by,
                       Cell(row.Gradient()), Cell(row.doc));
  }
  return out;
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

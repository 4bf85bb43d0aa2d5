#include "tests/onnx_backend/support_doc.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "base/strings.h"
#include "frontend/onnx/ops_table.h"
#include "tests/onnx_backend/cases.h"
#include "tests/onnx_backend/lists.h"

namespace hyper::onnx_backend {
namespace {

using onnx_frontend::OnnxOpVersion;

struct Tests {
  int cases = 0;
  int passed = 0;
  std::map<std::string, int> refused;  // reason -> cases
};

using Key = std::tuple<std::string, std::string, int>;

std::string Cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) {
    text.replace(at, 1, "\\|");
  }
  return text;
}

std::string Counted(const std::map<std::string, int>& reasons) {
  std::vector<std::string> parts;
  for (const auto& [reason, count] : reasons) parts.push_back(fmt::format("{} {}", count, reason));
  return Join(parts, "; ");
}

// A row: versions of one operator that are read alike.
struct Row {
  OnnxOpVersion like;
  std::vector<std::string> versions;
  std::vector<std::string> tests;  // "13: 4/5"
  std::map<std::string, int> refused;
};

std::string RowText(const Row& row) {
  const std::string name =
      row.like.domain.empty() ? row.like.op : row.like.domain + "::" + row.like.op;
  return fmt::format("| `{}` | {} | {} | {} | {} | {} | {} |\n", name, Join(row.versions, ", "),
                     row.like.by.empty() ? "no" : row.like.by, Cell(row.like.gradient),
                     Join(row.tests, ", "), Cell(Counted(row.refused)), Cell(row.like.doc));
}

}  // namespace

std::string SupportMarkdown(const std::string& node_tests) {
  const Lists lists = ReadLists();
  std::map<Key, Tests> tests;
  Tests all;
  for (const std::string& name : CaseNames(node_tests)) {
    const auto node_case = ReadCase(node_tests, name);
    if (!node_case.ok()) continue;
    Tests& of_op = tests[{node_case->domain, node_case->op, node_case->since}];
    const auto refused = lists.refused.find(name);
    for (Tests* counts : {&of_op, &all}) {
      ++counts->cases;
      if (refused == lists.refused.end()) {
        ++counts->passed;
      } else {
        ++counts->refused[refused->second.substr(0, refused->second.find('\t'))];
      }
    }
  }
  std::string out = fmt::format(
      "# ONNX support\n\n"
      "Written by `onnx_support_test` from the importer records (`hyperc ops --onnx`) and the "
      "lists of\n`tests/onnx_backend/`. Models may have opset 7 or newer. Functions of the model "
      "itself are inlined.\n"
      "What single attributes or types are refused is said where a model is read (`hyperc "
      "inspect`).\n\n"
      "Of the {} node tests of ONNX 1.22.0, compiled and executed on the `cpu` target with the "
      "default\nkernels, {} pass; the others are refused:\n\n| cases | reason |\n|---|---|\n",
      all.cases, all.passed);
  for (const auto& [reason, count] : all.refused) {
    out += fmt::format("| {} | {} |\n", count, reason);
  }
  out += fmt::format(
      "\n{} of the passing ones read no data at run time (`tests/onnx_backend/not_executed.txt`): "
      "the case has\nnone, all of it decides shapes, or the operator asks for shapes alone.\n\n",
      lists.not_executed.size());
  out +=
      "`since`: versions of the operator. `forward`: an importer of its own, the body that the "
      "ONNX library\ngives for the operator (`function`), the branch that is taken (`branch`), or "
      "`no`. `cpu`: node tests\nthat pass, of those for that version (expanded ones included). "
      "`refused`: the other ones.\nDifferentiable operators without a gradient: "
      "`tests/onnx_backend/no_gradient.txt`; the cases that check gradients,\nby operator and "
      "version: `tests/onnx_backend/gradient_versions.txt`.\n\n"
      "| operator | since | forward | gradient | cpu | refused | becomes |\n"
      "|---|---|---|---|---|---|---|\n";
  std::vector<Row> rows;
  for (const OnnxOpVersion& version : onnx_frontend::OnnxOpVersions()) {
    const bool same = !rows.empty() && rows.back().like.domain == version.domain &&
                      rows.back().like.op == version.op && rows.back().like.by == version.by;
    if (!same) rows.push_back({version, {}, {}, {}});
    Row& row = rows.back();
    row.versions.push_back(std::to_string(version.since));
    const auto found = tests.find({version.domain, version.op, version.since});
    if (found == tests.end()) continue;
    row.tests.push_back(
        fmt::format("{}: {}/{}", version.since, found->second.passed, found->second.cases));
    for (const auto& [reason, count] : found->second.refused) row.refused[reason] += count;
  }
  for (const Row& row : rows) out += RowText(row);
  return out;
}

}  // namespace hyper::onnx_backend

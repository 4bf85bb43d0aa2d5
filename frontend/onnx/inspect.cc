#include "frontend/onnx/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/strings.h"
#include "frontend/onnx/functions.h"
#include "frontend/onnx/import_function.h"

namespace hyper::onnx_frontend {
namespace {

std::string TypeText(const onnx::ValueInfoProto& value) {
  if (!value.type().has_tensor_type()) return "not a tensor";
  const auto& tensor = value.type().tensor_type();
  if (!tensor.has_shape()) return OnnxTypeName(tensor.elem_type()) + " of unknown rank";
  std::vector<std::string> extents;
  for (int i = 0; i < tensor.shape().dim_size(); ++i) {
    const auto& dim = tensor.shape().dim(i);
    extents.push_back(dim.has_dim_value()       ? std::to_string(dim.dim_value())
                      : dim.dim_param().empty() ? fmt::format("{}.{}", value.name(), i)
                                                : dim.dim_param());
  }
  return fmt::format("{}[{}]", OnnxTypeName(tensor.elem_type()), Join(extents, ","));
}

// Inputs that nodes read where they must know the value at compile time.
std::set<std::string> DecidingInputs(const LoadedModel& model) {
  std::set<std::string> names;
  for (const onnx::NodeProto& node : model.graph().node()) {
    const ImportTarget* target = ImportTargets().Find(NormalDomain(node.domain()), node.op_type());
    if (target == nullptr) continue;
    for (const int slot : target->constant_inputs) {
      if (slot < node.input_size()) names.insert(node.input(slot));
    }
  }
  return names;
}

std::string_view KindText(const ParameterDecision& d) {
  if (d.constant) return "constant";
  switch (d.kind) {
    case ir::ArgumentKind::kParameter: return "trained";
    case ir::ArgumentKind::kState: return "state";
    default: return "frozen";
  }
}

// Nodes that cut the way of the gradient between trained tensors and the outputs.
void FindGradientProblems(const LoadedModel& model, const ParameterPlan& plan,
                          ModelReport* report) {
  std::set<std::string> depends;
  for (const ParameterDecision& d : plan.tensors) {
    if (d.constant || (d.kind != ir::ArgumentKind::kParameter && d.cut_by.empty())) continue;
    depends.insert(d.name);
  }
  // The operands that an exporter left out are biases: what reads them reads weights as well.
  const auto reads_any = [&](const onnx::NodeProto& node) {
    for (int i = 0; i < node.input_size(); ++i) {
      if (depends.count(plan.Reads(node, i)) > 0) return true;
    }
    for (const std::string& name : NamesRead(node)) {
      if (depends.count(name) > 0) return true;
    }
    return false;
  };
  for (const onnx::NodeProto& node : model.graph().node()) {
    if (!reads_any(node)) continue;
    const ImportTarget* target = ImportTargets().Find(NormalDomain(node.domain()), node.op_type());
    if (target != nullptr && !target->no_gradient.empty()) {
      // What depends on the shape alone has no gradient and needs none.
      if (node.op_type() == "Shape" || node.op_type() == "Size") continue;
      report->problems.push_back(
          {NodeTitle(node), node.op_type(), "gradient", std::string(target->no_gradient)});
      continue;
    }
    for (const std::string& output : node.output()) depends.insert(output);
  }
}

}  // namespace

ModelReport BuildReport(const LoadedModel& model, const ImportOptions& given) {
  ModelReport report;
  const onnx::ModelProto& proto = *model.proto;
  report.path = model.path;
  report.ir_version = proto.ir_version();
  for (const auto& import : proto.opset_import()) {
    const std::string domain = NormalDomain(import.domain());
    report.opsets.emplace_back(domain.empty() ? "ai.onnx" : domain, import.version());
  }
  report.producer =
      Join(std::vector<std::string>{proto.producer_name(), proto.producer_version()}, " ");
  const std::set<std::string> deciding = DecidingInputs(model);
  for (const auto* input : model.inputs) {
    report.inputs.push_back({input->name(), TypeText(*input), deciding.count(input->name()) > 0});
  }
  for (const auto& output : proto.graph().output())
    report.outputs.push_back({output.name(), TypeText(output)});
  report.dims = SymbolicDims(model);

  ImportOptions options = given;
  options.training = true;
  if (options.losses.empty()) {
    for (const auto& output : proto.graph().output()) {
      LossSpec loss;
      loss.prediction = output.name();
      options.losses.push_back(loss);
    }
  }
  Diagnostics diagnostics;
  const ParameterPlan plan = PlanParameters(model, options, &diagnostics);
  report.tensors = plan.tensors;
  report.notes = plan.warnings;
  report.notes.insert(report.notes.end(), plan.notes.begin(), plan.notes.end());
  for (const ParameterDecision& d : plan.tensors) {
    if (d.constant || !d.needed) continue;
    (d.kind == ir::ArgumentKind::kParameter ? report.trained_elements : report.frozen_elements) +=
        d.kind == ir::ArgumentKind::kState ? 0 : d.type.elements();
  }
  std::map<std::string, int> count;
  std::set<std::string> refused;
  for (int i = 0; i < proto.graph().node_size(); ++i) {
    const onnx::NodeProto& node = proto.graph().node(i);
    const std::string domain = NormalDomain(node.domain());
    ++count[domain.empty() ? node.op_type() : domain + "." + node.op_type()];
    if (Status s = Importable(node, model.node_opset[static_cast<size_t>(i)]); !s.ok()) {
      report.problems.push_back({NodeTitle(node), node.op_type(), "import", s.message()});
      refused.insert(NodeLocation(model.path, node));
    }
  }
  report.ops.assign(count.begin(), count.end());
  std::stable_sort(report.ops.begin(), report.ops.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  FindGradientProblems(model, plan, &report);
  for (const SymbolicDim& dim : report.dims) {
    if (given.dims.count(dim.name) == 0) return report;  // shapes are not known
  }
  ImportOptions forward = given;
  forward.training = false;
  forward.losses.clear();
  std::set<std::string> undecided;
  if (!Import(model, forward, &diagnostics, &undecided).ok()) {
    for (ReportTensor& input : report.inputs) {
      input.bind = input.bind || undecided.count(input.name) > 0;
    }
    for (const Diagnostic& d : diagnostics.items()) {
      if (d.severity != Severity::kError || refused.count(d.location.file) > 0) continue;
      report.messages.push_back(fmt::format("{}: {}{}{}", d.location.file, d.message,
                                            d.help.empty() ? "" : "; ", d.help));
    }
  }
  return report;
}

namespace {

constexpr size_t kColumns = 100;

// Words of `text` on lines of at most `width`, the lines after the first behind `indent` blanks.
std::string Wrapped(const std::string& text, size_t width, size_t indent) {
  std::string out;
  size_t used = 0;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const size_t length = end - begin;
    if (used > 0 && used + 1 + length > width) {
      // A word that is longer than the line begins further to the left.
      const size_t fitting = length > width && length < kColumns - 4 ? kColumns - length : indent;
      out += "\n" + std::string(std::min(indent, fitting), ' ');
      used = 0;
    } else if (used > 0) {
      out += ' ';
      ++used;
    }
    out.append(text, begin, length);
    used += length;
    begin = end + 1;
  }
  return out;
}

// Rows of columns as wide as their widest cell, but no wider than `limits`; a wider cell pushes the
// rest of its row to the next line. The last column takes what is left and is wrapped.
std::string Table(const std::vector<std::vector<std::string>>& rows,
                  const std::vector<size_t>& limits) {
  std::vector<size_t> widths(limits.size(), 0);
  for (const auto& row : rows) {
    for (size_t i = 0; i < limits.size(); ++i) {
      if (row[i].size() <= limits[i]) widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line = "  ";
    size_t at = 2;
    for (size_t i = 0; i < limits.size(); ++i) {
      line += row[i];
      at += widths[i] + 2;
      if (row[i].size() > widths[i]) {
        line += "\n" + std::string(at, ' ');
      } else {
        line += std::string(widths[i] - row[i].size() + 2, ' ');
      }
    }
    line += Wrapped(row[limits.size()], kColumns - at, at);
    while (line.ends_with(' ')) line.pop_back();
    out += line + "\n";
  }
  return out;
}

std::string ReasonText(const ParameterDecision& d) {
  std::string text = d.reason;
  if (!d.suspicion.empty()) text += fmt::format("; perhaps a buffer: it {}", d.suspicion);
  if (!d.alias.empty()) text += fmt::format(" (also called {})", d.alias);
  return text;
}

}  // namespace

std::string ReportText(const ModelReport& r) {
  std::string out = fmt::format("{}: IR {}, ", r.path, r.ir_version);
  for (const auto& [domain, version] : r.opsets) out += fmt::format("{} {}, ", domain, version);
  out += fmt::format("by {}\n", r.producer == " " ? "unknown" : r.producer);
  auto tensors = [&](std::string_view title, const std::vector<ReportTensor>& list) {
    std::vector<std::vector<std::string>> rows;
    for (const ReportTensor& t : list) {
      rows.push_back({t.name, t.type + (t.bind ? "; decides shapes or branches: give it a value "
                                                 "under model.bind"
                                               : "")});
    }
    out += fmt::format("\n{}\n", title) + Table(rows, {40});
  };
  tensors("inputs", r.inputs);
  tensors("outputs", r.outputs);
  if (!r.dims.empty()) {
    std::vector<std::vector<std::string>> rows;
    for (const SymbolicDim& d : r.dims) rows.push_back({d.name, Join(d.uses, ", ")});
    out += "\nsymbolic dims\n" + Table(rows, {40});
  }
  out += fmt::format("\nweights: {} elements trained, {} frozen\n", r.trained_elements,
                     r.frozen_elements);
  std::vector<std::vector<std::string>> rows = {{"name", "type", "kind", "why"}};
  for (const ParameterDecision& d : r.tensors) {
    if (d.constant && d.type.elements() <= 1) continue;
    rows.push_back({d.name, d.type.ToString(), std::string(KindText(d)), ReasonText(d)});
  }
  if (rows.size() > 1) out += Table(rows, {36, 20, 8});
  if (!r.notes.empty()) out += "\nnotes\n";
  for (const std::string& note : r.notes) {
    out += "  " + Wrapped(note, kColumns - 4, 4) + "\n";
  }
  out += "\noperators\n";
  rows.clear();
  for (const auto& [op, n] : r.ops) rows.push_back({op, std::to_string(n)});
  out += Table(rows, {40});
  if (!r.problems.empty()) out += "\nnodes that cannot be imported or pass no gradient\n";
  for (const ReportProblem& p : r.problems) {
    const std::string text = fmt::format("{:<9} {} ({}): {}", p.kind, p.node, p.op, p.reason);
    out += "  " + Wrapped(text, kColumns - 12, 12) + "\n";
  }
  if (!r.messages.empty()) out += "\nerrors\n";
  for (const std::string& m : r.messages) out += "  " + Wrapped(m, kColumns - 4, 4) + "\n";
  return out;
}

std::string ReportJson(const ModelReport& r) {
  using nlohmann::ordered_json;
  ordered_json j;
  j["path"] = r.path;
  j["ir_version"] = r.ir_version;
  j["opsets"] = ordered_json::object();
  for (const auto& [domain, version] : r.opsets) j["opsets"][domain] = version;
  j["producer"] = r.producer;
  auto tensors = [](const std::vector<ReportTensor>& list) {
    ordered_json a = ordered_json::array();
    for (const ReportTensor& t : list) {
      a.push_back({{"name", t.name}, {"type", t.type}});
      if (t.bind) a.back()["bind"] = true;
    }
    return a;
  };
  j["inputs"] = tensors(r.inputs);
  j["outputs"] = tensors(r.outputs);
  j["dims"] = ordered_json::array();
  for (const SymbolicDim& d : r.dims) j["dims"].push_back({{"name", d.name}, {"uses", d.uses}});
  j["parameters"] = ordered_json::array();
  for (const ParameterDecision& d : r.tensors) {
    j["parameters"].push_back({{"name", d.name},
                               {"alias", d.alias},
                               {"type", ir::DTypeName(d.type.dtype)},
                               {"dims", d.type.dims},
                               {"kind", KindText(d)},
                               {"reason", d.reason},
                               {"suspicion", d.suspicion},
                               {"tied", ordered_json::array()}});
    for (const TiedName& t : d.tied) {
      j["parameters"].back()["tied"].push_back({{"name", t.name}, {"transposed", t.transposed}});
    }
  }
  j["ops"] = ordered_json::object();
  for (const auto& [op, n] : r.ops) j["ops"][op] = n;
  j["problems"] = ordered_json::array();
  for (const ReportProblem& p : r.problems) {
    j["problems"].push_back(
        {{"node", p.node}, {"op", p.op}, {"kind", p.kind}, {"reason", p.reason}});
  }
  j["messages"] = r.messages;
  j["notes"] = r.notes;
  j["trained_elements"] = r.trained_elements;
  j["frozen_elements"] = r.frozen_elements;
  return j.dump(2, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace hyper::onnx_frontend

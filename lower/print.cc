#include "lower/print.h"

#include <fmt/format.h>

#include "base/strings.h"
#include "ir/op_def.h"
#include "ir/text.h"

namespace hyper::lower {
namespace {

std::string_view StorageName(Storage s) {
  constexpr std::string_view kNames[] = {"parameter", "gradient",  "optimizer", "frozen",
                                         "state",     "statistic", "input",     "scalar",
                                         "constant",  "result",    "temporary"};
  return kNames[static_cast<size_t>(s)];
}

std::string_view AccessName(Access a) {
  constexpr std::string_view kNames[] = {"", "=", "+=", "<>", "scratch "};
  return kNames[static_cast<size_t>(a)];
}

std::string Text(const LoweredModule& module, const Operand& o) {
  const Root& root = module.roots[static_cast<size_t>(o.root.index)];
  std::string text = fmt::format("{}{}#{} {}:{}", AccessName(o.access), root.name, o.root.index,
                                 o.view.type.ToString(), FormatDims(o.view.strides));
  if (o.view.offset != 0) text += fmt::format("@{}", o.view.offset);
  return text;
}

}  // namespace

std::string Print(const LoweredModule& module, const LoweredFunction& function) {
  std::string text = fmt::format("function {}\n", function.name);
  for (const LoweredOp& op : function.ops) {
    std::string head, body;
    if (const auto* k = std::get_if<LibraryKernel>(&op.kernel)) {
      head = k->primitive + "." + k->op;
    } else if (const auto* g = std::get_if<GeneratedKernel>(&op.kernel)) {
      head = "generated." + g->form;
      for (ir::NodeId id : g->body.order()) {
        const ir::Node& n = g->body.node(id);
        const bool map = n.op->name == "map";
        body += fmt::format(
            " {}", map ? n.attributes.GetExpr("expr").ToString() : std::string(n.op->name));
      }
    } else if (const auto* r = std::get_if<ReferenceKernel>(&op.kernel)) {
      head = "reference." + r->op;
    } else {
      head = "marker";
      for (const std::string& p : std::get<MarkerKernel>(op.kernel).parameters) body += " " + p;
    }
    text += "  " + head;
    for (size_t i = 0; i < op.operands.size(); ++i) {
      text += (i == 0 ? " " : ", ") + Text(module, op.operands[i]);
    }
    if (!body.empty()) text += " {" + body + " }";
    if (const auto* g = std::get_if<GeneratedKernel>(&op.kernel)) {
      text +=
          fmt::format(" group {}: {} of {} bytes", op.group, op.bytes_moved, g->lower_bound_bytes);
    }
    text += "\n";
  }
  for (const LoweredFunction::Named& r : function.results) {
    text += fmt::format("  result {} {}\n", r.name, Text(module, r.operand));
  }
  for (const std::string& u : function.unfused) text += fmt::format("  unfused {}\n", u);
  return text;
}

std::string Print(const LoweredModule& module) {
  std::string text = fmt::format("module {}\n", module.name);
  for (size_t i = 0; i < module.roots.size(); ++i) {
    const Root& r = module.roots[i];
    text += fmt::format("root #{} {} {}{} {}[{}]\n", i, StorageName(r.storage), r.name,
                        r.slot.empty() ? "" : "." + r.slot, ir::DTypeName(r.dtype), r.elements);
  }
  for (const LoweredFunction& f : module.functions) text += Print(module, f);
  return text;
}

}  // namespace hyper::lower

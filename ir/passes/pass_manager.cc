#include <algorithm>
#include <chrono>

#include "base/strings.h"
#include "ir/pass.h"
#include "ir/passes/passes.h"
#include "ir/text.h"

namespace hyper::ir {
namespace {

struct Step {
  const Pass* pass = nullptr;
  std::map<std::string, std::string> options;
};

std::string_view Trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

Status Unknown(std::string what, std::string_view name, const std::vector<std::string>& known) {
  const std::string hint = DidYouMean(name, known);
  std::string message = what + " '" + std::string(name) + "'; ";
  message += hint.empty() ? "known: " + Join(known, ", ") : hint;
  return InvalidArgument(std::move(message));
}

Status ParseOptions(const Pass& pass, std::string_view text, Step* step) {
  std::vector<std::string> names;
  for (const PassOption& o : pass.options) {
    names.emplace_back(o.name);
    step->options[std::string(o.name)] = std::string(o.default_value);
  }
  while (!Trim(text).empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view item = Trim(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
    const size_t equals = item.find('=');
    const std::string name(Trim(item.substr(0, equals)));
    if (!step->options.contains(name)) {
      return Unknown("pass '" + std::string(pass.name) + "' has no option", name, names);
    }
    if (equals == std::string_view::npos) {
      return InvalidArgument("option '" + name + "' of pass '" + std::string(pass.name) +
                             "' needs a value: " + name + "=...");
    }
    step->options[name] = std::string(Trim(item.substr(equals + 1)));
  }
  return Status::Ok();
}

Result<std::vector<Step>> ParsePipeline(std::string_view text) {
  std::vector<std::string> names;
  for (const Pass& p : Passes().passes()) names.emplace_back(p.name);
  std::vector<Step> steps;
  while (!Trim(text).empty()) {
    const size_t end = std::min(text.find_first_of(",{"), text.size());
    const std::string_view name = Trim(text.substr(0, end));
    Step& step = steps.emplace_back();
    step.pass = Passes().Find(name);
    if (step.pass == nullptr) return Unknown("no pass", name, names);
    std::string_view options;
    text.remove_prefix(end);
    if (text.starts_with("{")) {
      const size_t close = text.find('}');
      if (close == std::string_view::npos) {
        return InvalidArgument("pass '" + std::string(name) + "': '{' without '}'");
      }
      options = text.substr(1, close - 1);
      text.remove_prefix(close + 1);
    }
    HYPER_RETURN_IF_ERROR(ParseOptions(*step.pass, options, &step));
    text = Trim(text);
    if (text.empty()) break;
    if (!text.starts_with(",")) {
      return InvalidArgument("expected ',' after pass '" + std::string(name) + "'");
    }
    text.remove_prefix(1);
  }
  return steps;
}

}  // namespace

void PassRegistry::Add(Pass pass) {
  HYPER_CHECK(Find(pass.name) == nullptr, "pass registered twice");
  passes_.push_back(std::move(pass));
}

const Pass* PassRegistry::Find(std::string_view name) const {
  for (const Pass& p : passes_) {
    if (p.name == name) return &p;
  }
  return nullptr;
}

const PassRegistry& Passes() {
  static const PassRegistry* registry = [] {
    auto* r = new PassRegistry();
    r->Add(CanonicalizePass());
    r->Add(CsePass());
    r->Add(DcePass());
    r->Add(FuseMapConstantsPass());
    r->Add(RematerializeCheapPass());
    return r;
  }();
  return *registry;
}

Status RunPipeline(std::string_view pipeline, Module& module, const PipelineOptions& options,
                   std::vector<PassTrace>* trace) {
  HYPER_ASSIGN_OR_RETURN(const std::vector<Step> steps, ParsePipeline(pipeline));
  for (const std::string& name : options.print_after) {
    if (name != "all" && Passes().Find(name) == nullptr) {
      return InvalidArgument("cannot print after '" + name + "': no such pass");
    }
  }
  int count = 0;
  for (const Step& step : steps) {
    if (options.pass_limit >= 0 && count >= options.pass_limit) break;
    ++count;
    const std::string name(step.pass->name);
    PassContext context;
    context.options = step.options;
    const auto start = std::chrono::steady_clock::now();
    HYPER_RETURN_IF_ERROR(
        Guard([&] { return step.pass->run(module, context); }).WithContext("pass " + name));
    const std::chrono::duration<double, std::milli> elapsed =
        std::chrono::steady_clock::now() - start;
    if (const Status s = Verify(module); !s.ok()) {
      return Internal("pass " + name + " left broken IR: " + s.message());
    }
    if (trace != nullptr) {
      trace->push_back({name, context.changed, elapsed.count(), context.statistics});
    }
    const bool wanted = std::any_of(options.print_after.begin(), options.print_after.end(),
                                    [&](const std::string& p) { return p == "all" || p == name; });
    if (wanted && options.print) options.print(name, Print(module));
  }
  return Status::Ok();
}

}  // namespace hyper::ir

#include "base/diagnostics.h"

#include <algorithm>

#include <fmt/format.h>

namespace hyper {
namespace {

std::string_view SeverityName(Severity severity) {
  switch (severity) {
    case Severity::kNote: return "note";
    case Severity::kWarning: return "warning";
    case Severity::kError: return "error";
  }
  return "error";
}

std::string_view LineOf(std::string_view source, int line) {
  for (int current = 1; current < line; ++current) {
    const size_t end = source.find('\n');
    if (end == std::string_view::npos) return {};
    source.remove_prefix(end + 1);
  }
  return source.substr(0, source.find('\n'));
}

std::string Position(const SourceLocation& location) {
  if (location.line <= 0) return location.file;
  return fmt::format("{}:{}:{}", location.file, location.line, std::max(location.column, 1));
}

}  // namespace

void Diagnostics::Error(SourceLocation location, std::string message, std::string help) {
  Add({Severity::kError, std::move(location), std::move(message), {}, std::move(help)});
}

void Diagnostics::Warning(SourceLocation location, std::string message, std::string help) {
  Add({Severity::kWarning, std::move(location), std::move(message), {}, std::move(help)});
}

void Diagnostics::Note(SourceLocation location, std::string message) {
  Add({Severity::kNote, std::move(location), std::move(message), {}, {}});
}

int Diagnostics::error_count() const {
  return static_cast<int>(std::count_if(items_.begin(), items_.end(), [](const Diagnostic& d) {
    return d.severity == Severity::kError;
  }));
}

Status Diagnostics::ToStatus(std::string_view source) const {
  if (!has_errors()) return Status::Ok();
  return InvalidArgument(Render(source));
}

std::string Diagnostics::Render(std::string_view source, int limit) const {
  std::string out;
  int errors = 0;
  for (const Diagnostic& item : items_) {
    if (item.severity == Severity::kError && ++errors > limit) continue;
    const std::string position = Position(item.location);
    out += fmt::format("{}{}{}: {}\n", position, position.empty() ? "" : ": ",
                       SeverityName(item.severity), item.message);
    if (item.location.line > 0 && !source.empty()) {
      const std::string_view line = LineOf(source, item.location.line);
      if (!line.empty()) {
        out += fmt::format("  {}\n  {:>{}}\n", line, "^", std::max(item.location.column, 1));
      }
    }
    for (const std::string& note : item.notes) out += fmt::format("  note: {}\n", note);
    if (!item.help.empty()) out += fmt::format("  help: {}\n", item.help);
  }
  if (errors > limit) out += fmt::format("... and {} more errors\n", errors - limit);
  return out;
}

}  // namespace hyper

#include "tests/support/check_lines.h"

#include <map>
#include <regex>

namespace hyper::testing {
namespace {

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

std::string Escape(std::string_view literal) {
  std::string out;
  for (char c : literal) {
    if (c == ' ') {
      if (!out.ends_with("[ \\t]+")) out += "[ \\t]+";
      continue;
    }
    if (std::string_view("\\^$.|?*+()[]{}").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

using Variables = std::map<std::string, std::string>;

struct Compiled {
  std::regex regex;
  std::vector<std::pair<std::string, size_t>> captures;  // name, group
};

size_t Groups(std::string_view regex) {
  return std::regex(regex.begin(), regex.end()).mark_count();
}

Result<Compiled> Compile(const Check& check, const Variables& variables) {
  return Guard([&]() -> Result<Compiled> {
    Compiled out;
    std::string text;
    size_t groups = 0;
    std::string_view rest = check.pattern;
    while (!rest.empty()) {
      const size_t open = std::min(rest.find("{{"), rest.find("[["));
      text += Escape(rest.substr(0, open));
      if (open == std::string_view::npos) break;
      const bool is_regex = rest[open] == '{';
      rest.remove_prefix(open + 2);
      const size_t close = rest.find(is_regex ? "}}" : "]]");
      if (close == std::string_view::npos) {
        return InvalidArgument("line " + std::to_string(check.line) + ": pattern does not close");
      }
      const std::string body(rest.substr(0, close));
      rest.remove_prefix(close + 2);
      if (is_regex) {
        text += "(?:" + body + ")";
        groups += Groups(body);
        continue;
      }
      const size_t colon = body.find(':');
      const std::string name = body.substr(0, colon);
      if (colon != std::string::npos) {
        const std::string regex = body.substr(colon + 1);
        out.captures.emplace_back(name, ++groups);
        groups += Groups(regex);
        text += "(" + regex + ")";
      } else {
        const auto it = variables.find(name);
        if (it == variables.end()) {
          return InvalidArgument("line " + std::to_string(check.line) + ": [[" + name +
                                 "]] is used before it is set");
        }
        text += Escape(it->second);
      }
    }
    out.regex = std::regex(text);
    return out;
  });
}

std::string_view KindText(CheckKind kind) {
  switch (kind) {
    case CheckKind::kPlain: return "CHECK";
    case CheckKind::kNext: return "CHECK-NEXT";
    case CheckKind::kSame: return "CHECK-SAME";
    case CheckKind::kNot: return "CHECK-NOT";
    case CheckKind::kLabel: return "CHECK-LABEL";
  }
  return "";
}

class Checker {
 public:
  Checker(const std::vector<Check>& checks, std::string_view output)
      : checks_(checks), output_(output) {}
  Status Run();

 private:
  struct Match {
    size_t begin;
    size_t end;
  };
  Result<std::optional<Match>> Find(const Check& check, size_t from, size_t to);
  Status Fail(const Check& check, std::string_view what, size_t at) const;
  Status FindLabels();
  Status RunNots(size_t from, size_t to);
  size_t LineEnd(size_t at) const { return std::min(output_.find('\n', at), output_.size()); }

  const std::vector<Check>& checks_;
  std::string_view output_;
  Variables variables_;
  std::vector<Match> labels_;
  std::vector<const Check*> nots_;  // waiting for the next positive match
};

Result<std::optional<Checker::Match>> Checker::Find(const Check& check, size_t from, size_t to) {
  HYPER_ASSIGN_OR_RETURN(const Compiled compiled, Compile(check, variables_));
  std::cmatch m;
  const char* base = output_.data();
  if (from > to || !std::regex_search(base + from, base + to, m, compiled.regex)) {
    return std::optional<Match>();
  }
  for (const auto& [name, group] : compiled.captures) variables_[name] = m[group].str();
  const size_t begin = from + static_cast<size_t>(m.position(0));
  return std::optional<Match>(Match{begin, begin + static_cast<size_t>(m.length(0))});
}

Status Checker::Fail(const Check& check, std::string_view what, size_t at) const {
  return InvalidArgument("line " + std::to_string(check.line) + ": " +
                         std::string(KindText(check.kind)) + ": " + check.pattern + "\n" +
                         std::string(what) + ":\n" + std::string(output_.substr(at, 1500)) +
                         "\n--- whole output ---\n" + std::string(output_));
}

Status Checker::FindLabels() {
  size_t at = 0;
  for (const Check& check : checks_) {
    if (check.kind != CheckKind::kLabel) continue;
    HYPER_ASSIGN_OR_RETURN(const std::optional<Match> m, Find(check, at, output_.size()));
    if (!m) return Fail(check, "label not found after", at);
    labels_.push_back(*m);
    at = m->end;
  }
  return Status::Ok();
}

Status Checker::RunNots(size_t from, size_t to) {
  for (const Check* check : nots_) {
    HYPER_ASSIGN_OR_RETURN(const std::optional<Match> m, Find(*check, from, to));
    if (m) return Fail(*check, "found here", m->begin);
  }
  nots_.clear();
  return Status::Ok();
}

Status Checker::Run() {
  HYPER_RETURN_IF_ERROR(FindLabels());
  size_t at = 0;
  size_t label = 0;
  auto block_end = [&] { return label < labels_.size() ? labels_[label].begin : output_.size(); };
  for (const Check& check : checks_) {
    if (check.kind == CheckKind::kNot) {
      nots_.push_back(&check);
      continue;
    }
    if (check.kind == CheckKind::kLabel) {
      HYPER_RETURN_IF_ERROR(RunNots(at, labels_[label].begin));
      at = labels_[label++].end;
      continue;
    }
    size_t from = at;
    size_t to = block_end();
    if (check.kind == CheckKind::kNext) {
      from = std::min(LineEnd(at) + 1, output_.size());
      to = LineEnd(from);
    } else if (check.kind == CheckKind::kSame) {
      to = LineEnd(at);
    }
    HYPER_ASSIGN_OR_RETURN(const std::optional<Match> m, Find(check, from, to));
    if (!m) return Fail(check, "not found in", from);
    HYPER_RETURN_IF_ERROR(RunNots(at, m->begin));
    at = m->end;
  }
  return RunNots(at, output_.size());
}

}  // namespace

Result<TestFile> ReadTestFile(std::string_view text) {
  TestFile file;
  int line_number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++line_number;
    const size_t comment = line.find("//");
    if (comment == std::string_view::npos) continue;
    line = Trim(line.substr(comment + 2));
    const size_t colon = line.find(':');
    const std::string_view key = line.substr(0, colon);
    const std::string value(colon == std::string_view::npos ? "" : Trim(line.substr(colon + 1)));
    if (key == "RUN") {
      file.runs.push_back(value);
    } else if (key.starts_with("CHECK") && colon != std::string_view::npos) {
      std::optional<CheckKind> kind;
      for (CheckKind k : {CheckKind::kPlain, CheckKind::kNext, CheckKind::kSame, CheckKind::kNot,
                          CheckKind::kLabel}) {
        if (KindText(k) == key) kind = k;
      }
      if (!kind || value.empty()) {
        return InvalidArgument("line " + std::to_string(line_number) + ": cannot read '" +
                               std::string(line) + "'");
      }
      file.checks.push_back({*kind, value, line_number});
    } else if (line.starts_with("expected-error")) {
      const size_t open = line.find("{{");
      const size_t close = line.rfind("}}");
      if (open == std::string_view::npos || close == std::string_view::npos) {
        return InvalidArgument("line " + std::to_string(line_number) +
                               ": expected-error without {{text}}");
      }
      ExpectedError error{std::string(line.substr(open + 2, close - open - 2)), std::nullopt};
      const size_t at = line.find('@');
      if (at < open) error.line = line_number + std::stoi(std::string(line.substr(at + 1)));
      file.errors.push_back(std::move(error));
    }
  }
  return file;
}

Status RunChecks(const std::vector<Check>& checks, std::string_view output) {
  return Checker(checks, output).Run();
}

Status CheckErrors(const std::vector<ExpectedError>& errors, std::string_view message) {
  for (const ExpectedError& e : errors) {
    const bool found = message.find(e.text) != std::string_view::npos;
    const bool placed =
        !e.line || message.find(":" + std::to_string(*e.line) + ":") != std::string_view::npos;
    if (found && placed) continue;
    return InvalidArgument("expected an error with '" + e.text + "'" +
                           (e.line ? " at line " + std::to_string(*e.line) : "") + ", got:\n" +
                           std::string(message));
  }
  return Status::Ok();
}

}  // namespace hyper::testing

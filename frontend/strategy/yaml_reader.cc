#include "frontend/strategy/yaml_reader.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include "base/strings.h"

namespace hyper::strategy {
namespace {

using Kind = ConfigNode::Kind;

// Our own reasons to stop in the middle of a document.
struct Refused {
  YAML::Mark mark;
  std::string message;
};

int CountNodes(const ConfigNode& node) {
  int count = 1;
  for (const ConfigNode& key : node.keys) count += CountNodes(key);
  for (const ConfigNode& item : node.items) count += CountNodes(item);
  return count;
}

int Depth(const ConfigNode& node) {
  int deepest = 0;
  for (const ConfigNode& key : node.keys) deepest = std::max(deepest, Depth(key));
  for (const ConfigNode& item : node.items) deepest = std::max(deepest, Depth(item));
  return deepest + 1;
}

// Builds the tree from the parser's events; limits are checked as nodes arrive, so the parser
// never recurses deeper than kMaxDepth.
class TreeBuilder : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& mark) override { document_ = mark; }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Finish(Make(Kind::kNull, mark), anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) throw Refused{mark, "an alias inside the value that it names"};
    if (static_cast<int>(open_.size()) + found->second.depth > kMaxDepth) TooDeep(mark);
    Count(mark, found->second.nodes);
    Attach(found->second.node);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    CheckTag(mark, tag);
    ConfigNode node = Make(Kind::kScalar, mark);
    node.text = value;
    node.quoted = tag == "!";
    Finish(std::move(node), anchor);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(Kind::kList, mark, tag, anchor);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open(Kind::kMap, mark, tag, anchor);
  }
  void OnMapEnd() override { Close(); }

  std::optional<ConfigNode>& root() { return root_; }
  const YAML::Mark& document() const { return document_; }

 private:
  struct OpenNode {
    ConfigNode node;
    YAML::anchor_t anchor;
  };
  struct Anchored {
    ConfigNode node;
    int nodes;
    int depth;
  };

  [[noreturn]] static void TooDeep(const YAML::Mark& mark) {
    throw Refused{mark, fmt::format("nested more than {} levels deep", kMaxDepth)};
  }

  static void CheckTag(const YAML::Mark& mark, const std::string& tag) {
    if (tag.empty() || tag == "?" || tag == "!") return;
    throw Refused{mark, fmt::format("YAML tags such as '{}' are not supported", tag)};
  }

  void Count(const YAML::Mark& mark, int more) {
    nodes_ += more;
    if (nodes_ <= kMaxNodes) return;
    throw Refused{mark, fmt::format("more than {} values, aliases counted in full", kMaxNodes)};
  }

  ConfigNode Make(Kind kind, const YAML::Mark& mark) {
    Count(mark, 1);
    ConfigNode node;
    node.kind = kind;
    node.line = mark.line + 1;
    node.column = mark.column + 1;
    return node;
  }

  void Open(Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    CheckTag(mark, tag);
    if (static_cast<int>(open_.size()) >= kMaxDepth) TooDeep(mark);
    open_.push_back({Make(kind, mark), anchor});
  }

  void Close() {
    OpenNode done = std::move(open_.back());
    open_.pop_back();
    Finish(std::move(done.node), done.anchor);
  }

  void Finish(ConfigNode node, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) {
      const int nodes = CountNodes(node);
      const int depth = Depth(node);
      anchors_[anchor] = {node, nodes, depth};
    }
    Attach(std::move(node));
  }

  void Attach(ConfigNode node) {
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    ConfigNode& parent = open_.back().node;
    const bool is_key = parent.kind == Kind::kMap && parent.keys.size() == parent.items.size();
    (is_key ? parent.keys : parent.items).push_back(std::move(node));
  }

  std::optional<ConfigNode> root_;
  YAML::Mark document_;
  std::vector<OpenNode> open_;
  std::map<YAML::anchor_t, Anchored> anchors_;
  int nodes_ = 0;
};

// Whether line `line` (from 0) starts with white space that has a tab in it.
bool HasTabIndent(std::string_view text, int line) {
  for (; line > 0; --line) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return false;
    text.remove_prefix(end + 1);
  }
  return text.substr(0, text.find_first_not_of(" \t")).find('\t') != std::string_view::npos;
}

// Length of the UTF-8 sequence at the start of `text`, 0 when it is not one.
size_t Utf8Length(std::string_view text) {
  const auto byte = [&text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates and what lies above U+10FFFF.
  if (lead == 0xE0 && byte(1) < 0xA0) return 0;
  if (lead == 0xED && byte(1) > 0x9F) return 0;
  if (lead == 0xF0 && byte(1) < 0x90) return 0;
  if (lead == 0xF4 && byte(1) > 0x8F) return 0;
  return length;
}

}  // namespace

bool IsReadableText(std::string_view text, const std::string& file, Diagnostics* diagnostics) {
  if (text.size() > kMaxYamlBytes) {
    diagnostics->Error({file, 0, 0}, fmt::format("the file has {}; a strategy may have at most {}",
                                                 FormatBytes(static_cast<int64_t>(text.size())),
                                                 FormatBytes(static_cast<int64_t>(kMaxYamlBytes))));
    return false;
  }
  int line = 1;
  size_t line_start = 0;
  for (size_t i = 0; i < text.size();) {
    const SourceLocation here{file, line, static_cast<int>(i - line_start) + 1};
    const auto byte = static_cast<unsigned char>(text[i]);
    const size_t length = Utf8Length(text.substr(i));
    if (length == 0) {
      diagnostics->Error(here, fmt::format("byte 0x{:02x} is not UTF-8 text", byte),
                         "save the file as UTF-8");
      return false;
    }
    if (byte < 0x20 && byte != '\n' && byte != '\t') {
      diagnostics->Error(here, fmt::format("control character 0x{:02x} in the file", byte));
      return false;
    }
    i += length;
    if (byte == '\n') {
      ++line;
      line_start = i;
    } else if (i - line_start > kMaxYamlLine) {
      diagnostics->Error({file, line, 1},
                         fmt::format("the line is longer than {} bytes", kMaxYamlLine));
      return false;
    }
  }
  return true;
}

std::optional<ConfigNode> ReadYaml(std::string_view text, const std::string& file,
                                   Diagnostics* diagnostics) {
  TreeBuilder builder;
  const auto fail = [&](const YAML::Mark& mark, const std::string& message) {
    const bool known = !mark.is_null();
    diagnostics->Error(
        {file, known ? mark.line + 1 : 0, known ? mark.column + 1 : 0}, message,
        known && HasTabIndent(text, mark.line) ? "indent with spaces, not tabs" : "");
    return std::nullopt;
  };
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    parser.HandleNextDocument(builder);
    if (!builder.root() || builder.root()->kind == Kind::kNull) {
      diagnostics->Error({file, 0, 0}, "the strategy is empty", "start with 'version: 1'");
      return std::nullopt;
    }
    TreeBuilder rest;
    if (parser.HandleNextDocument(rest)) {
      return fail(rest.document(), "a second document; a strategy is one YAML document");
    }
  } catch (const Refused& refused) {
    return fail(refused.mark, refused.message);
  } catch (const YAML::Exception& error) {
    return fail(error.mark, fmt::format("YAML syntax: {}", error.msg));
  } catch (const std::exception& error) {
    return fail(YAML::Mark::null_mark(), fmt::format("YAML reader: {}", error.what()));
  }
  return std::move(builder.root());
}

}  // namespace hyper::strategy

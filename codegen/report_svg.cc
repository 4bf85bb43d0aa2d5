#include <algorithm>

#include <fmt/format.h>

#include "base/strings.h"
#include "codegen/report.h"
#include "codegen/validate.h"

namespace hyper::codegen {
namespace {

constexpr double kWidth = 960;
constexpr double kHeight = 360;
constexpr double kLeft = 90;
constexpr double kRight = 20;
constexpr double kTop = 40;
constexpr double kBottom = 40;

// A touch of one elementary byte range.
struct Touch {
  int instruction = -1;
  bool starts_anew = false;  // overwrites all of it
};

bool IsDense(const program::Operand& o) {
  int64_t bytes = DTypeBytes(o.dtype());
  for (const int64_t extent : o.dims()) bytes *= extent;
  return bytes == o.end() - o.begin();
}

std::string Escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string Text(double x, double y, std::string_view anchor, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     Escaped(text));
}

std::string Line(double x1, double y1, double x2, double y2, std::string_view style) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1,
                     x2, y2, style);
}

}  // namespace

std::vector<int64_t> LiveBytes(const program::Program& program, const program::SubProgram& sub) {
  int64_t begin = 0;
  int64_t end = 0;
  for (const program::Region& region : program.regions()) {
    if (region.storage() != program::TEMPORARY) continue;
    begin = region.begin();
    end = region.end();
  }
  const auto temporary = [&](const program::Operand& o) {
    return o.begin() < o.end() && o.begin() >= begin && o.end() <= end;
  };
  std::vector<int64_t> cuts;  // borders of elementary ranges
  for (const program::Instruction& instruction : sub.instructions()) {
    for (const program::Operand& o : instruction.operands()) {
      if (!temporary(o)) continue;
      cuts.push_back(o.begin());
      cuts.push_back(o.end());
    }
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());

  std::vector<int64_t> change(static_cast<size_t>(sub.instructions_size()) + 1, 0);
  std::vector<Touch> last(cuts.size());
  const auto alive = [&](size_t cut, int from, int to) {  // both included
    const int64_t bytes = cuts[cut + 1] - cuts[cut];
    change[static_cast<size_t>(from)] += bytes;
    change[static_cast<size_t>(to) + 1] -= bytes;
  };
  for (int i = 0; i < sub.instructions_size(); ++i) {
    for (const program::Operand& o : sub.instructions(i).operands()) {
      if (!temporary(o)) continue;
      const bool anew =
          (o.access() == program::WRITE && IsDense(o)) || o.access() == program::WORKSPACE;
      auto cut =
          static_cast<size_t>(std::lower_bound(cuts.begin(), cuts.end(), o.begin()) - cuts.begin());
      for (; cuts[cut] < o.end(); ++cut) {
        Touch& touch = last[cut];
        if (touch.instruction == i) continue;  // counted already
        if (touch.instruction < 0 || anew) {
          alive(cut, i, i);
        } else {
          alive(cut, touch.instruction + 1, i);
        }
        touch.instruction = i;
      }
    }
  }
  std::vector<int64_t> live(static_cast<size_t>(sub.instructions_size()), 0);
  int64_t sum = 0;
  for (size_t i = 0; i < live.size(); ++i) live[i] = sum += change[i];
  return live;
}

Result<std::string> MemoryChartSvg(const program::Program& program, const std::string& subprogram) {
  const program::SubProgram* sub = nullptr;
  std::vector<std::string> names;
  for (const program::SubProgram& candidate : program.subprograms()) {
    names.push_back(candidate.name());
    if (candidate.name() == subprogram) sub = &candidate;
  }
  if (sub == nullptr) {
    return NotFound(
        fmt::format("there is no subprogram '{}'; there are: {}", subprogram, Join(names, ", ")));
  }
  const std::vector<int64_t> live = LiveBytes(program, *sub);
  const int64_t top = std::max<int64_t>({sub->temporary_peak(), sub->live_lower_bound(), 1});
  const double plot_width = kWidth - kLeft - kRight;
  const double plot_height = kHeight - kTop - kBottom;
  const double base = kHeight - kBottom;
  const double step = plot_width / static_cast<double>(std::max<size_t>(live.size(), 1));
  const auto y = [&](int64_t bytes) {
    return base - plot_height * static_cast<double>(bytes) / static_cast<double>(top);
  };

  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
      kWidth, kHeight);
  svg += Text(kLeft, 24, "start", fmt::format("@{}: live temporary bytes", sub->name()));
  for (int quarter = 0; quarter <= 4; ++quarter) {
    const int64_t bytes = top / 4 * quarter + top % 4 * quarter / 4;
    svg += Line(kLeft, y(bytes), kWidth - kRight, y(bytes), "stroke=\"#ddd\"");
    svg += Text(kLeft - 6, y(bytes) + 4, "end", FormatBytes(bytes));
  }
  std::string points = fmt::format("M{:.1f},{:.1f}", kLeft, base);
  for (size_t i = 0; i < live.size(); ++i) {
    const double x = kLeft + step * static_cast<double>(i);
    points += fmt::format(" L{:.1f},{:.1f} L{:.1f},{:.1f}", x, y(live[i]), x + step, y(live[i]));
  }
  points += fmt::format(" L{:.1f},{:.1f} Z", kLeft + plot_width, base);
  svg += fmt::format("<path d=\"{}\" fill=\"#9ecae1\" stroke=\"#3182bd\"/>\n", points);
  svg += Line(kLeft, y(sub->temporary_peak()), kWidth - kRight, y(sub->temporary_peak()),
              "stroke=\"#de2d26\" stroke-dasharray=\"6 3\"");
  svg += Text(kWidth - kRight, y(sub->temporary_peak()) - 4, "end",
              fmt::format("planned peak {}", FormatBytes(sub->temporary_peak())));
  svg += Text(kLeft, base + 20, "start", "instruction 0");
  svg += Text(kWidth - kRight, base + 20, "end", fmt::format("{}", live.size()));
  return svg + "</svg>\n";
}

}  // namespace hyper::codegen

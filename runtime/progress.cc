#include "runtime/progress.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <vector>

#include <fmt/format.h>

#include "base/strings.h"

namespace hyper::runtime {
namespace {

// 1234567 -> "1,234,567"
std::string Grouped(int64_t value) {
  std::string text = fmt::format("{}", value);
  for (int64_t at = static_cast<int64_t>(text.size()) - 3; at > 0; at -= 3) {
    text.insert(static_cast<size_t>(at), ",");
  }
  return text;
}

std::string Plural(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : noun.ends_with("h") ? "es" : "s");
}

// Hosts in order of their first rank: "node1 (ranks 0, 1), node2 (ranks 2, 3)".
std::string FormatHosts(const StartInfo& info) {
  std::vector<std::string> order;
  std::map<std::string, std::vector<std::string>> ranks;
  for (size_t rank = 0; rank < info.hosts.size(); ++rank) {
    std::vector<std::string>& list = ranks[info.hosts[rank]];
    if (list.empty()) order.push_back(info.hosts[rank]);
    list.push_back(fmt::format("{}", rank));
  }
  std::vector<std::string> parts;
  for (const std::string& host : order) {
    const std::vector<std::string>& list = ranks[host];
    // Consecutive ranks are the common case and shorter as a range.
    const int first = std::stoi(list.front());
    const int last = std::stoi(list.back());
    const bool range = list.size() > 2 && last - first + 1 == static_cast<int>(list.size());
    parts.push_back(fmt::format("{} (rank{} {})", host, list.size() == 1 ? "" : "s",
                                range ? fmt::format("{}-{}", first, last) : Join(list, ", ")));
  }
  return Join(parts, ", ");
}

std::string FormatThreads(const StartInfo& info) {
  const auto [low, high] =
      std::minmax_element(info.threads_per_rank.begin(), info.threads_per_rank.end());
  if (low == info.threads_per_rank.end()) return fmt::format("{}", info.threads);
  return *low == *high ? fmt::format("{}", *low) : fmt::format("{} to {}", *low, *high);
}

class TextReporter final : public Reporter {
 public:
  TextReporter(std::function<void(std::string_view)> write, TextReporterOptions options)
      : write_(std::move(write)), options_(std::move(options)) {}
  // What others print next begins on a line of its own.
  ~TextReporter() override { EndBar(); }

  void OnStart(const StartInfo& info) override {
    info_ = info;
    if (info_.rank != 0) return;
    write_(FormatStart(info));
    start_ = Now();
  }

  void OnStep(const StepReport& report) override {
    if (info_.rank != 0) return;
    const bool last = report.step == info_.steps;
    if (!options_.terminal) {
      const int64_t every = options_.log_every > 0 ? options_.log_every : info_.log_every;
      if (report.step % std::max<int64_t>(every, 1) == 0 || last ||
          report.step == info_.first_step + 1) {
        write_(FormatStep(report, info_.steps) + "\n");
      }
      return;
    }
    const double now = Now();
    if (!last && bar_shown_ && now - last_draw_ < options_.redraw_seconds) return;
    last_draw_ = now;
    const double done = static_cast<double>(report.step - info_.first_step);
    const double left = (now - start_) / done * static_cast<double>(info_.steps - report.step);
    const int width = options_.width ? options_.width() : 80;
    write_("\r" + FormatBar(report, info_.first_step, info_.steps, left, width) + "\x1b[K");
    bar_shown_ = true;
    if (last) EndBar();
  }

  void OnEval(const EvalReport& report) override { Line(FormatEval(report)); }
  void OnCheckpoint(int64_t step, const std::string& path) override {
    Line(fmt::format("step {}: state saved in {}", step, path));
  }
  void OnNote(const std::string& text) override { Line("note: " + text); }

 private:
  double Now() const {
    if (options_.clock) return options_.clock();
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  void EndBar() {
    if (bar_shown_) write_("\n");
    bar_shown_ = false;
  }
  void Line(const std::string& text) {
    if (info_.rank != 0) return;
    EndBar();
    write_(text + "\n");
  }

  std::function<void(std::string_view)> write_;
  TextReporterOptions options_;
  StartInfo info_;
  double start_ = 0;
  double last_draw_ = 0;
  bool bar_shown_ = false;
};

}  // namespace

std::string FormatStart(const StartInfo& info) {
  std::string text = fmt::format("model       {}\n", info.model);
  if (info.training) {
    text += fmt::format("batch       {} x {} x {} = {} samples per step\n", info.micro_batch,
                        Plural(info.micro_batches, "micro-batch"), Plural(info.replicas, "replica"),
                        info.micro_batch * info.micro_batches * info.replicas);
    text += info.steps > info.first_step
                ? fmt::format("steps       {} to {}\n", info.first_step + 1, info.steps)
                : "steps       none\n";
  } else {
    text +=
        fmt::format("batch       {} x {}\n", info.micro_batch, Plural(info.replicas, "replica"));
  }
  text += fmt::format("parameters  {} trained in {}, {} frozen in {}\n",
                      Grouped(info.trained_parameters), Plural(info.trained_tensors, "tensor"),
                      Grouped(info.frozen_parameters), Plural(info.frozen_tensors, "tensor"));
  if (!info.checkpoint.empty()) {
    text += fmt::format("start       step {} from {}\n", info.first_step, info.checkpoint);
  }
  std::vector<std::string> data;
  if (info.training) data.push_back(Grouped(info.train_samples) + " samples to train on");
  if (info.eval_samples > 0) {
    data.push_back(fmt::format("{} {}", Grouped(info.eval_samples),
                               info.training ? "held out" : "held-out samples"));
  }
  if (!data.empty()) text += fmt::format("data        {}\n", Join(data, ", "));
  text += fmt::format("ranks       {} on {}\n", info.hosts.size(), FormatHosts(info));
  text += fmt::format("threads     {} per rank\n", FormatThreads(info));
  text += fmt::format("memory      {} per rank\n", FormatBytes(info.arena_bytes));
  return text;
}

std::string FormatStep(const StepReport& report, int64_t steps) {
  return fmt::format("step {}/{}  loss {:.5g}  lr {:.4g}{}  {:.4g} samples/s  {:.4g} ms",
                     report.step, steps, report.loss, report.lr,
                     report.grad_norm ? fmt::format("  norm {:.4g}", *report.grad_norm) : "",
                     report.samples_per_s, report.step_ms);
}

std::string FormatEval(const EvalReport& report) {
  return fmt::format(
      "step {}: evaluation loss {}{} on {} samples in {:.3g} s", report.step,
      std::isnan(report.loss) ? "nan" : fmt::format("{:.5g}", report.loss),
      report.accuracy ? fmt::format(", accuracy {:.2f} %", 100 * *report.accuracy) : "",
      report.samples, report.seconds);
}

std::string FormatDuration(double seconds) {
  const int64_t total = std::max<int64_t>(0, static_cast<int64_t>(seconds + 0.5));
  if (total >= 3600) {
    return fmt::format("{}:{:02}:{:02}", total / 3600, total / 60 % 60, total % 60);
  }
  return fmt::format("{}:{:02}", total / 60, total % 60);
}

std::string FormatBar(const StepReport& report, int64_t first_step, int64_t steps,
                      double seconds_left, int width) {
  const std::string parts[] = {
      fmt::format("{}/{}", report.step, steps),
      fmt::format("  loss {:.4g}", report.loss),
      fmt::format("  {:.4g} samples/s", report.samples_per_s),
      fmt::format("  {} left", FormatDuration(seconds_left)),
  };
  // The last column stays free: some terminals wrap when it is written.
  const size_t room = static_cast<size_t>(std::max(width - 1, 0));
  std::string text;
  for (const std::string& part : parts) {
    if (text.size() + part.size() > room) break;
    text += part;
  }
  constexpr size_t kBarExtra = 3;  // brackets and a space
  if (room < text.size() + kBarExtra + 8) return text;
  const size_t cells = std::min<size_t>(room - text.size() - kBarExtra, 30);
  const double share = steps > first_step ? static_cast<double>(report.step - first_step) /
                                                static_cast<double>(steps - first_step)
                                          : 1;
  const size_t full = std::min(cells, static_cast<size_t>(share * static_cast<double>(cells)));
  return fmt::format("[{}{}] {}", std::string(full, '#'), std::string(cells - full, '.'), text);
}

std::unique_ptr<Reporter> MakeTextReporter(std::function<void(std::string_view)> write,
                                           TextReporterOptions options) {
  return std::make_unique<TextReporter>(std::move(write), std::move(options));
}

}  // namespace hyper::runtime

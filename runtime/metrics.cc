#include "runtime/metrics.h"

#include <iterator>

#include <nlohmann/json.hpp>

namespace hyper::runtime {
namespace {

constexpr int64_t kMetricsLimit = int64_t{1} << 30;

// Lines of an earlier run that are whole records of steps up to `last`.
std::string KeptLines(const std::string& text, int64_t last) {
  std::string kept;
  size_t begin = 0;
  while (true) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) return kept;  // a cut last line goes
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    const nlohmann::json record = nlohmann::json::parse(line, nullptr, false);
    if (!record.is_object() || !record.contains("step") || !record["step"].is_number_integer() ||
        record["step"].get<int64_t>() > last) {
      continue;
    }
    kept += line + "\n";
  }
}

}  // namespace

Result<std::unique_ptr<MetricsWriter>> MetricsWriter::Create(FileSystem* fs,
                                                             const std::string& path,
                                                             int64_t keep_until_step) {
  std::string kept;
  if (keep_until_step > 0 && fs->Exists(path)) {
    HYPER_ASSIGN_OR_RETURN(const std::string text, fs->ReadAll(path, kMetricsLimit));
    kept = KeptLines(text, keep_until_step);
  }
  // A name of its own first: what is kept exists at every moment.
  const std::string temporary = path + ".tmp";
  HYPER_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, fs->Create(temporary));
  if (!kept.empty()) {
    HYPER_RETURN_IF_ERROR(file->Append(std::as_bytes(std::span(kept.data(), kept.size()))));
  }
  if (!kept.empty()) HYPER_RETURN_IF_ERROR(file->Sync());
  HYPER_RETURN_IF_ERROR(fs->Rename(temporary, path));
  return std::unique_ptr<MetricsWriter>(new MetricsWriter(std::move(file)));
}

Status MetricsWriter::Write(const StepReport& report) {
  line_.clear();
  auto out = std::back_inserter(line_);
  fmt::format_to(out, R"({{"kind":"step","step":{},"loss":{},"lr":{},"grad_norm":)", report.step,
                 report.loss, report.lr);
  if (report.grad_norm) {
    fmt::format_to(out, "{}", *report.grad_norm);
  } else {
    fmt::format_to(out, "null");
  }
  fmt::format_to(out, R"(,"clip_coef":{},"step_ms":{:.3f},"samples_per_s":{:.3f}}})",
                 report.clip_coef, report.step_ms, report.samples_per_s);
  return Flush();
}

Status MetricsWriter::Write(const EvalReport& report, const std::string& checkpoint) {
  line_.clear();
  auto out = std::back_inserter(line_);
  fmt::format_to(out, R"({{"kind":"eval","step":{},"loss":)", report.step);
  if (report.loss - report.loss == 0) {
    fmt::format_to(out, "{}", report.loss);
  } else {
    fmt::format_to(out, "null");  // JSON knows no infinity or NaN
  }
  if (report.accuracy) {
    fmt::format_to(out, R"(,"accuracy":{})", *report.accuracy);
  } else {
    fmt::format_to(out, R"(,"accuracy":null)");
  }
  fmt::format_to(out, R"(,"samples":{},"seconds":{:.3f},"checkpoint":{}}})", report.samples,
                 report.seconds, checkpoint.empty() ? "null" : nlohmann::json(checkpoint).dump());
  return Flush();
}

Status MetricsWriter::Flush() {
  line_.push_back('\n');
  return file_->Append(std::as_bytes(std::span(line_.data(), line_.size())));
}

Status MetricsWriter::Close() { return file_->Close(); }

}  // namespace hyper::runtime

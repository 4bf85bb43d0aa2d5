// metrics.jsonl and eval.jsonl: one JSON object a line; fields in docs/formats.md.
//   {"kind":"step","step":1,"loss":2.3,"lr":0.1,"grad_norm":1.5,"clip_coef":1,"step_ms":8.1,
//    "samples_per_s":3950.6}
//   {"kind":"eval","step":100,"loss":0.4,"accuracy":0.87,"samples":10000,"seconds":1.2,
//    "checkpoint":null}
// Numbers are plain JSON numbers that read back to the same double.
// Thread safety: none.
#pragma once

#include <memory>
#include <string>

#include <fmt/format.h>

#include "base/file.h"
#include "runtime/evaluator.h"
#include "runtime/trainer.h"

namespace hyper::runtime {

class MetricsWriter {
 public:
  // Starts the file anew, in its place when it is complete; records of steps up to
  // `keep_until_step` of an existing file stay (a resumed run), lines that are no such records are
  // dropped.
  static Result<std::unique_ptr<MetricsWriter>> Create(FileSystem* fs, const std::string& path,
                                                       int64_t keep_until_step);
  // Does not allocate.
  Status Write(const StepReport& report);
  // `checkpoint`: whose values were evaluated; empty when they are those of the run, or initial.
  Status Write(const EvalReport& report, const std::string& checkpoint = {});
  Status Close();

 private:
  explicit MetricsWriter(std::unique_ptr<WritableFile> file) : file_(std::move(file)) {}
  Status Flush();

  std::unique_ptr<WritableFile> file_;
  fmt::memory_buffer line_;
};

}  // namespace hyper::runtime

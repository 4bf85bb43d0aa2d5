// The samples of all inputs of a program, from one data source.
// Thread safety: const calls are safe from several threads.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "frontend/strategy/launch_config.h"
#include "runtime/data/input_reader.h"

namespace hyper::runtime {

class Dataset {
 public:
  // One reader per input, in the order of `inputs`. Every input needs a source, every source an
  // input, and all files the same number of samples: kInvalidArgument with the names otherwise.
  // Labels named in `labels` are checked, all of them, before this returns.
  static Result<std::unique_ptr<Dataset>> Create(const strategy::DataSource& source,
                                                 std::vector<InputSpec> inputs,
                                                 const std::map<std::string, LabelRange>& labels,
                                                 int64_t seed);

  int64_t samples() const { return samples_; }
  const std::vector<InputSpec>& inputs() const { return inputs_; }
  // `out`: SampleBytes() of the input.
  Status Read(int input, int64_t sample, std::byte* out) const {
    return readers_[static_cast<size_t>(input)]->Read(sample, out);
  }
  int FindInput(const std::string& name) const;  // or -1

 private:
  Dataset() = default;
  std::vector<InputSpec> inputs_;
  std::vector<std::unique_ptr<InputReader>> readers_;
  int64_t samples_ = 0;
};

}  // namespace hyper::runtime

// Jobs whose memory plans are tested.
#pragma once

#include <string>
#include <vector>

namespace hyper::e2e {

struct Job {
  std::string name;      // of its bundle
  std::string model;     // path
  std::string strategy;  // YAML
};

// Small batches and synthetic data: a convolutional net, one with an odd batch, a GPT.
std::vector<Job> Jobs();
// The recipes as they are published.
std::vector<Job> Recipes();

}  // namespace hyper::e2e

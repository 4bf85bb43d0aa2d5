// Runs hyperc and hyperrun as a user does and keeps what they say: shared by the tests of the
// command lines.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace hyper::tools {

struct CliRun {
  int exit_code = -1;  // 128 + N: killed by signal N
  std::string out;     // stdout
  std::string err;     // stderr
};

// Arguments as given, without a shell. The program starts in the scratch folder, with its kernel
// cache below it and no launcher's variables. Killed after five minutes.
CliRun Hyperc(const std::vector<std::string>& arguments);
CliRun Hyperrun(const std::vector<std::string>& arguments);
// With another kernel cache (a folder in the scratch folder).
CliRun HypercWithCache(const std::string& cache, const std::vector<std::string>& arguments);

// With the largest anonymous resident memory that was seen meanwhile, bytes, of hyperc itself.
CliRun HypercWatched(const std::vector<std::string>& arguments, int64_t* anonymous_peak);

// Under `mpirun -n ranks`; 0: without a launcher. `meanwhile` is called while it runs, with the
// process of each rank (all of them are there).
CliRun HyperrunWhile(int ranks, const std::vector<std::string>& arguments,
                     const std::function<void(const std::vector<int>& processes)>& meanwhile);
// On two ranks, with rank 1's main thread out of memory, once, when the file `from` is there
// (see failing_new.cc).
CliRun HyperrunWithoutMemory(const std::string& from, const std::vector<std::string>& arguments);
// Waits until `done`; false after two minutes, or when that program ends before.
bool WaitUntil(const std::function<bool()>& done);

// An empty folder of this process, removed when it ends.
const std::string& ScratchFolder();
std::string Scratch(const std::string& name);
std::string Recipe(const std::string& file);  // "fashion_mnist/model.onnx" -> its path

std::string ReadBytes(const std::string& path);
void WriteBytes(const std::string& path, const std::string& bytes);  // makes the folder

// A .npy file (version 1, C order); `shape` as in Python, "128, 28, 28" or "3,".
std::string Npy(const std::string& dtype, const std::string& shape, const std::string& data);

// The recipe's bundle (its only strategy), compiled once per process.
const std::string& RecipeBundle(const std::string& recipe);
// A copy of it in the scratch folder.
std::string CopyOfBundle(const std::string& recipe, const std::string& name);
// Paths of all files below `folder`, relative to it, sorted.
std::vector<std::string> FilesBelow(const std::string& folder);

// Replaces the first `from`, which must occur.
std::string Replaced(std::string text, const std::string& from, const std::string& to);

// The file tests/tools/golden/NAME. With HYPER_UPDATE_GOLDEN=1 it is written instead.
void ExpectGolden(const std::string& name, const std::string& actual);

}  // namespace hyper::tools
